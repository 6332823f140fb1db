//! The checks, the worst first.

use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The server does not do what it is for: `/health` answers 503.
    Outage,
    /// It works, and an operator has something to do.
    Warning,
}

pub const SEVERITIES: [&str; 2] = ["outage", "warning"];

impl Severity {
    pub fn name(self) -> &'static str {
        SEVERITIES[self as usize]
    }
}

macro_rules! checks {
    ($($check:ident $name:literal $severity:ident $effect:literal $remedy:literal $($visitor:literal)?;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Check {
            $(#[serde(rename = $name)] $check,)+
        }

        pub const CHECKS: [&str; Check::ALL.len()] = [$($name),+];

        impl Check {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$check),+];

            pub fn name(self) -> &'static str {
                CHECKS[self as usize]
            }

            pub fn severity(self) -> Severity {
                match self { $(Self::$check => Severity::$severity,)+ }
            }

            /// What it does to people.
            pub fn effect(self) -> &'static str {
                match self { $(Self::$check => $effect,)+ }
            }

            pub fn remedy(self) -> &'static str {
                match self { $(Self::$check => $remedy,)+ }
            }

            /// What an outage does to a visitor of the public page. It names nothing of the machine.
            pub fn for_visitors(self) -> Option<&'static str> {
                match self { $(Self::$check => [$($visitor)?].first().copied(),)+ }
            }
        }
    };
}

checks! {
    Store "store" Outage
        "Pushes are answered 503, and no user agent can connect."
        "Start the database, and let this server reach it. The log has the reason."
        "No push message arrives now: the database of this server does not answer.";
    Space "space" Outage
        "Messages that wait for their user agent are refused, and so are new subscriptions."
        "Free some space, or lower disk_free_min."
        "Push messages for devices that are away are refused, and so are new subscriptions: the disk of this server is full.";
    Certificate "certificate" Outage
        "No user agent and no application server trusts this server."
        "Renew the files of tls_certificate and tls_key: they are read again by themselves."
        "No device can connect: this server has no valid certificate.";
    Accepts "accepts" Outage
        "User agents and application servers cannot connect."
        "Raise the limit of open files (`LimitNOFILE` of the unit, or `ulimit -n`), or free memory."
        "Some devices cannot connect: this server is full.";
    Socket "socket" Outage
        "No proxy can connect, so no user agent and no application server reaches this server."
        "Restart the server. If systemd made the socket, restart its unit `kalends.socket`."
        "No device can connect: the way from the proxy to this server is gone.";
    Registry "registry" Outage
        "Messages wait in the store, although their user agents are connected."
        "Restart the server, and report what the log has."
        "Push messages arrive late: a part of this server has stopped.";
    Feeds "feeds" Outage
        "Followers of feeds and receipts see no change."
        "Restart the server, and report what the log has."
        "Push messages arrive, but no news of feeds: a part of this server has stopped.";
    Broadcasts "broadcasts" Outage
        "User agents see no new broadcasts."
        "Restart the server, and report what the log has."
        "Push messages arrive, but no news for all devices: a part of this server has stopped.";
    Log "log" Outage
        "The failures of this server are not logged."
        "Free the disk of the log, or restart what reads it."
        "Push messages arrive, but this server cannot write its log.";
    Disk "disk" Warning
        "On a full disk messages are refused."
        "Free some space soon.";
    CertificateEnds "certificate_ends" Warning
        "After that no user agent and no application server trusts this server."
        "Renew the files of tls_certificate and tls_key: they are read again by themselves.";
    Connections "connections" Warning
        "When all are taken, further user agents are refused, and so are pushes over new connections."
        "Raise connections_max.";
    Durability "durability" Warning
        "A push that was answered can be lost."
        "Change the setting of the database, or accept the loss.";
    Nodes "nodes" Warning
        "Pushes to user agents there are stored until these connect again. A push with TTL 0 is dropped."
        "`kalends nodes` has why: start what is down.";
    Clock "clock" Warning
        "Messages end too early or too late, and signed pushes are refused."
        "Set the clock, and let NTP keep it.";
    Months "months" Warning
        "User agents cannot change to that month, and cannot connect once it has begun."
        "Run `kalends tables create`. With `create_tables`, the log has why the server could not make it.";
    BroadcastSource "broadcast_source" Warning
        "User agents see no new broadcasts."
        "Start the service, or correct `broadcast_source_url`.";
    Rivals "rivals" Warning
        "Each of them closes the connection of the other, and messages reach either."
        "Give one of them a new profile, or delete its data, so that it gets a uaid of its own. See `kalends inspect`.";
    Maintenance "maintenance" Warning
        "Inactive users and old tables stay, or there is no new archive."
        "Mend what the reason names. It is repeated each hour.";
    MetricsPort "metrics_port" Warning
        "There is no operator's page, and no metric from which an alarm can rise."
        "Set `metrics_listen` to an address that is free or to `off`, and restart the server.";
    Backup "backup" Warning
        "If this disk fails, every subscription is lost."
        "Set `backup_dir`, or run `kalends backup` each day. Set `backup_reminder` to `false` if something else copies the disk.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outage_says_to_visitors_what_it_means_and_a_warning_nothing() {
        for check in Check::ALL {
            let is_outage = check.severity() == Severity::Outage;
            assert_eq!(check.for_visitors().is_some(), is_outage, "{}", check.name());
            // An operator's words, and what an operator would do.
            let text = check.for_visitors().unwrap_or_default();
            assert!(
                !["store", "endpoint", "agent", "`", "_"].iter().any(|word| text.contains(word))
            );
        }
    }
}
