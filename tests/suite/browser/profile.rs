//! The profile directory of Firefox.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Preferences, each with its value in JavaScript.
const PREFERENCES: &[(&str, &str)] = &[
    // Allows push without TLS and without a prompt, and any number of messages without a
    // notification. The preferences that Marionette recommends switch push off.
    ("remote.prefs.recommended", "false"),
    ("dom.push.connection.enabled", "true"),
    ("dom.push.testing.allowInsecureServerURL", "true"),
    ("dom.push.testing.ignorePermission", "true"),
    ("dom.push.maxQuotaPerSubscription", "10000"),
    ("permissions.default.desktop-notification", "1"),
    // The push client logs to standard output.
    ("dom.push.loglevel", r#""All""#),
    ("browser.dom.window.dump.enabled", "true"),
    ("devtools.console.stdout.chrome", "true"),
    // Marionette listens on a free port and prints it.
    ("marionette.port", "0"),
    // Nothing leaves this machine: the proxy for all addresses but loopback does not exist.
    ("network.proxy.type", "1"),
    ("network.proxy.http", r#""127.0.0.1""#),
    ("network.proxy.http_port", "9"),
    ("network.proxy.ssl", r#""127.0.0.1""#),
    ("network.proxy.ssl_port", "9"),
    ("network.proxy.failover_direct", "false"),
    ("network.proxy.allow_bypass", "false"),
    ("network.trr.mode", "5"),
    ("network.dns.disablePrefetch", "true"),
    // Switches off most background requests.
    ("app.normandy.enabled", "false"),
    ("app.update.disabledForTesting", "true"),
    ("browser.newtabpage.enabled", "false"),
    ("browser.region.network.url", r#""""#),
    ("browser.safebrowsing.blockedURIs.enabled", "false"),
    ("browser.safebrowsing.downloads.enabled", "false"),
    ("browser.safebrowsing.malware.enabled", "false"),
    ("browser.safebrowsing.phishing.enabled", "false"),
    ("browser.search.update", "false"),
    ("browser.topsites.contile.enabled", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("extensions.getAddons.cache.enabled", "false"),
    ("extensions.systemAddon.update.enabled", "false"),
    ("extensions.update.enabled", "false"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    ("security.remote_settings.intermediates.enabled", "false"),
    ("services.settings.server", r#""data:,#none/v1""#),
    ("toolkit.telemetry.enabled", "false"),
    ("toolkit.telemetry.server", r#""""#),
    ("toolkit.telemetry.unified", "false"),
    // No process starts before a page needs it.
    ("dom.ipc.processCount", "1"),
    ("dom.ipc.processPrelaunch.enabled", "false"),
    // Firefox opens no page, and restores none.
    ("browser.aboutwelcome.enabled", "false"),
    ("browser.backup.enabled", "false"),
    ("browser.sessionstore.resume_from_crash", "false"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("browser.startup.homepage_override.mstone", r#""ignore""#),
    ("browser.startup.page", "0"),
    ("browser.warnOnQuit", "false"),
    ("datareporting.policy.dataSubmissionPolicyBypassNotification", "true"),
    ("termsofuse.bypassNotification", "true"),
    ("toolkit.startup.max_resumed_crashes", "-1"),
];

/// A profile directory, which is removed when this is dropped.
pub(super) struct Profile(TempDir);

impl Profile {
    /// A new profile whose push service is at `push_url`, and which keeps what is downloaded.
    pub(super) fn new(push_url: &str) -> Self {
        let profile = Self(TempDir::new().expect("a temporary directory can be made"));
        let downloads = profile.downloads();
        fs::create_dir(&downloads).expect("a profile can be written");
        let mut text = format!("user_pref(\"dom.push.serverURL\", \"{push_url}\");\n");
        let downloads = format!("\"{}\"", downloads.display());
        let downloads =
            [("browser.download.folderList", "2"), ("browser.download.dir", &*downloads)];
        for (name, value) in PREFERENCES.iter().chain(&downloads) {
            writeln!(text, "user_pref(\"{name}\", {value});").expect("a string takes all");
        }
        fs::write(profile.path().join("user.js"), text).expect("a profile can be written");
        profile
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn downloads(&self) -> PathBuf {
        self.path().join("downloads")
    }
}
