//! The steps for each kind of device. The browser of the visitor enters; the steps for its device leave, and those for
//! others behind them.

use std::net::IpAddr;

use actix_web::http::header::{HeaderMap, USER_AGENT};
use qrcode::QrCode;
use qrcode::render::svg;
use url::{Host, Url};

/// Size of the code in its own coordinates. The style sheet scales it.
const QR_SIZE: u32 = 200;

/// What may use this server, with its name and its steps.
const WAYS: [(Device, &str, &str); 3] = [
    (Device::Firefox, "Firefox on a computer", include_str!("firefox.html")),
    (Device::Android, "Android", include_str!("android.html")),
    (Device::Kde, "KDE on a computer", include_str!("kde.html")),
];

/// What stands first for a browser that cannot.
const CANNOT: &str = "<p><strong>This browser cannot use this server</strong>: Chrome, Edge and Safari always use the \
                      push servers of their makers. These can:</p>\n";

const ON_THIS_COMPUTER: &str = "<p class=\"notice\">Phones cannot reach this address: only programs on the computer of the \
                                server can. For phones, also those in its home network, start the server with <code>--domain NAME</code>, as \
                                <code>docs/one-server.md</code> describes, or behind a proxy.</p>\n";

const WITHOUT_TLS: &str = "<p class=\"notice\">Phones cannot use this address: their apps need https, in a home network too. Start the server with \
    <code>--domain NAME</code>, as <code>docs/one-server.md</code> describes, or behind a proxy that has a certificate.</p>\n";

/// The device of a visitor, as far as its browser names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    Firefox,
    Android,
    /// Named by no browser.
    Kde,
    /// The browsers that cannot use this server.
    Other,
}

impl Device {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        match agent.unwrap_or_default() {
            agent if agent.contains("Android") => Self::Android,
            agent if agent.contains("Firefox/") => Self::Firefox,
            _ => Self::Other,
        }
    }

    /// The steps for this device, and those for others, folded.
    pub(super) fn text(self) -> String {
        let own = WAYS.iter().find(|(device, ..)| *device == self);
        let first =
            own.map_or(CANNOT.to_owned(), |(_, name, steps)| format!("<h3>{name}</h3>\n{steps}"));
        let others = WAYS.iter().filter(|(device, ..)| *device != self);
        others.fold(first, |text, (_, name, steps)| {
            text + &format!("<details>\n<summary>{name}</summary>\n{steps}</details>\n")
        })
    }

    /// The address as a code for the camera of a phone, if a phone reaches it and this is none.
    pub(super) fn qr_code(self, origin: &str, address: &str) -> String {
        if self == Self::Android || !notice(origin).is_empty() {
            return String::new();
        }
        let Ok(code) = QrCode::new(address) else { return String::new() };
        let code = code.render::<svg::Color<'_>>().min_dimensions(QR_SIZE, QR_SIZE).build();
        let svg = code.split_once("?>").map_or(&*code, |(_, svg)| svg);
        let svg =
            svg.replacen("<svg ", "<svg role=\"img\" aria-label=\"QR code of the address\" ", 1);
        format!(
            "<div class=\"qr\">{svg}<p>The camera of the phone reads the address: it opens this page there, with a button \
             to copy it.</p></div>\n"
        )
    }
}

/// Why phones do not reach this address, and what to do. Empty if they may.
pub(super) fn notice(origin: &str) -> &'static str {
    let url = Url::parse(origin).ok();
    let is_of_this_computer = url.as_ref().and_then(Url::host).is_some_and(|host| match host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(ip) => IpAddr::from(ip).is_loopback(),
        Host::Ipv6(ip) => IpAddr::from(ip).to_canonical().is_loopback(),
    });
    match () {
        () if is_of_this_computer => ON_THIS_COMPUTER,
        () if origin.starts_with("http:") => WITHOUT_TLS,
        () => "",
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn the_steps_begin_with_the_device_of_the_visitor() {
        for (agent, device, first) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                Device::Firefox,
                "<h3>Firefox",
            ),
            (
                "Mozilla/5.0 (Android 15; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0",
                Device::Android,
                "<h3>Android",
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) Chrome/140.0.0.0 Mobile Safari/537.36",
                Device::Android,
                "<h3>Android",
            ),
            (
                "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0.0.0 Safari/537.36",
                Device::Other,
                "<p><strong>This browser cannot",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) FxiOS/140.0",
                Device::Other,
                "<p><strong>This browser cannot",
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
            assert_eq!(Device::of(&headers), device, "{agent}");
            let text = device.text();
            assert!(text.starts_with(first), "{text}");
            let folded = if device == Device::Other { 3 } else { 2 };
            assert_eq!(text.matches("<details>").count(), folded, "{text}");
        }
        assert_eq!(Device::of(&HeaderMap::new()), Device::Other);
    }

    #[test]
    fn an_address_that_phones_reach_has_a_code_and_the_others_a_notice() {
        for (origin, says) in [
            ("https://push.example.net", ""),
            ("http://push.example.net", "need https"),
            ("http://192.168.1.2:8080", "need https"),
            ("http://127.0.0.1:8080", "on the computer of"),
            ("https://localhost:8443", "on the computer of"),
            ("http://[::1]:8080", "on the computer of"),
        ] {
            let (notice, code) = (notice(origin), Device::Firefox.qr_code(origin, origin));
            assert!(
                notice.contains(says) && notice.is_empty() == says.is_empty(),
                "{origin}: {notice}"
            );
            assert_eq!(code.is_empty(), !notice.is_empty(), "{origin}");
        }
        let code = Device::Other.qr_code("https://a.net", "https://a.net");
        assert!(
            code.contains("<svg role=") && !code.contains("<?xml") && !code.contains("style"),
            "{code}"
        );
        assert_eq!(Device::Android.qr_code("https://a.net", "https://a.net"), "");
    }
}
