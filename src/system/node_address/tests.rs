use super::*;

fn parse(text: &str) -> Result<NodeAddress, AddressError> {
    NodeAddress::parse(&NodeId::new(text))
}

fn node(text: &str) -> NodeAddress {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn allowed(list: &str) -> AllowedNodes {
    AllowedNodes::parse(list).unwrap()
}

/// Texts in which parsers disagree on the host.
const TWO_HOSTS: &[&str] = &[
    "http://127.0.0.1:80@evil/",
    "http://127.0.0.1:80@evil",
    "http://evil#@127.0.0.1",
    "http://evil\\@127.0.0.1",
    "http://127.0.0.1\\.evil",
    "http://user@127.0.0.1:80",
    "http://:80",
    "http://",
    "http:///",
    "http:127.0.0.1",
    "//",
    "//127.0.0.1:80",
    "/",
    "",
    "local",
    "127.0.0.1:8081",
];

/// Texts that getaddrinfo resolves to 127.0.0.1.
const NUMBERS: &[&str] = &[
    "http://2130706433",
    "http://2130706433:8081",
    "http://0x7f.1",
    "http://0x7f000001:80",
    "http://0x:80",
    "http://0X7F.0.0.1:80",
    "http://0177.0.0.1:80",
    "http://017700000001",
    "http://127.1:80",
    "http://127.0.0.1.:80",
    "http://127.0.0.01:80",
    "http://127.0.0.256:80",
    "http://1.2.3.4.5:80",
];

/// Escapes, other alphabets and control characters.
const OTHER_WRITINGS: &[&str] = &[
    "http://%31%32%37.0.0.1:80",
    "http://127.0.0.1%2f:80",
    "http://127.0.0.1%00:80",
    "http://127\u{3002}0\u{3002}0\u{3002}1:80",
    "http://\u{ff11}27.0.0.1:80",
    "http://n\u{f6}de:80",
    "http://127.0.0.1:80\r\nhost: evil",
    "http://127.0.0.1\r\n:80",
    "http://127.0.0.1:80\n",
    " http://127.0.0.1:80",
    "http://127.0.0.1 :80",
    "http://a\tb:80",
    "http://a\0b:80",
];

/// Texts with more than host and port, or less.
const MORE_OR_LESS: &[&str] = &[
    "http://127.0.0.1:80/",
    "http://127.0.0.1:80/push/",
    "http://127.0.0.1:80?a",
    "http://127.0.0.1:80#a",
    "http://127.0.0.1:",
    "http://127.0.0.1:0",
    "http://127.0.0.1:080",
    "http://127.0.0.1:+80",
    "http://127.0.0.1:65536",
    "http://127.0.0.1:80:80",
    "http://127.0.0.1:\u{0661}",
    "http://a..b:80",
    "http://.a:80",
    "http://.:80",
    "http://*:80",
    "http://*.example.net:80",
];

/// Brackets that are missing, misplaced or around something else than an IPv6 address.
const BRACKETS: &[&str] = &[
    "http://::1:80",
    "http://[::1:80",
    "http://::1]:80",
    "http://[::1]80",
    "http://[::1]x:80",
    "http://[]:80",
    "http://[127.0.0.1]:80",
    "http://[localhost]:80",
    "http://[fe80::1%eth0]:80",
    "http://[fe80::1%25eth0]:80",
    "http://[::1]@evil:80",
    "http://a[::1]:80",
];

const OTHER_SCHEMES: &[&str] = &[
    "https://127.0.0.1:80",
    "HTTP://127.0.0.1:80",
    "ftp://127.0.0.1:80",
    "file:///etc/passwd",
    "gopher://127.0.0.1:80",
    "unix:/run/docker.sock",
    "javascript:alert(1)",
];

#[test]
fn an_address_has_a_host_and_a_port_and_is_displayed_as_it_was_written() {
    for (text, authority, host, ip, port) in [
        ("http://10.1.2.3:8081", "10.1.2.3:8081", "10.1.2.3", true, 8081),
        ("http://[fd00::1]:8081", "[fd00::1]:8081", "fd00::1", true, 8081),
        ("http://[::1]", "[::1]", "::1", true, 80),
        ("http://Node-1.example_net.:1", "Node-1.example_net.:1", "Node-1.example_net.", false, 1),
        ("http://localhost:65535", "localhost:65535", "localhost", false, 65_535),
        ("http://7a.0xg:80", "7a.0xg:80", "7a.0xg", false, 80),
    ] {
        let read = node(text);
        assert_eq!((read.to_string().as_str(), read.node().as_str()), (text, text));
        assert_eq!((read.authority(), read.host(), read.port()), (authority, host, port));
        assert_eq!(read.ip().map(|ip| ip.to_string()), ip.then(|| host.to_owned()), "{text}");
    }
}

#[test]
fn a_url_that_parsers_understand_differently_is_no_address() {
    let all = [TWO_HOSTS, NUMBERS, OTHER_WRITINGS, MORE_OR_LESS, BRACKETS, OTHER_SCHEMES];
    for text in all.into_iter().flatten() {
        assert_eq!(parse(text), Err(AddressError), "{}", text.escape_debug());
    }
}

#[test]
fn a_host_name_that_is_too_long_is_no_address() {
    let label = |bytes| "a".repeat(bytes);
    let name = |bytes: usize| "a.".repeat(bytes / 2 - 1) + &label(2 + bytes % 2);
    for (fits, too_long) in
        [(label(63), label(64)), (name(253), name(254)), (label(1), label(1_000_000))]
    {
        assert!(parse(&format!("http://{fits}:80")).is_ok(), "{} bytes", fits.len());
        assert_eq!(parse(&format!("http://{too_long}:80")), Err(AddressError));
    }
}

#[test]
fn an_address_outside_the_list_is_not_allowed() {
    let default = AllowedNodes::loopback();
    for text in [
        "http://[::ffff:169.254.169.254]",
        "http://[::ffff:a9fe:a9fe]:80",
        "http://[::169.254.169.254]:80",
        "http://[::127.0.0.1]:80",
        "http://[64:ff9b::7f00:1]:80",
        "http://[::]:80",
        "http://[::2]:80",
        "http://169.254.169.254:80",
        "http://0.0.0.0:80",
        "http://128.0.0.1:80",
        "http://126.255.255.255:80",
        "http://localhost:80",
        "http://127.0.0.1.example.net:80",
        "http://evil:80",
    ] {
        assert!(!default.allows(&node(text)), "{text}");
    }
    for text in [
        "http://127.0.0.1:8081",
        "http://127.255.255.255:1",
        "http://[::1]:8081",
        "http://[0:0:0:0:0:0:0:1]:8081",
        "http://[::ffff:127.0.0.1]:8081",
    ] {
        assert!(default.allows(&node(text)), "{text}");
    }
}

#[test]
fn a_pattern_allows_only_the_nodes_that_match_it() {
    for (list, yes, no) in [
        ("10.0.0.1", "10.0.0.1:1", "10.0.0.2:1"),
        ("10.0.0.1:8081", "10.0.0.1:8081", "10.0.0.1:8082"),
        ("10.0.0.1:80", "10.0.0.1", "10.0.0.1:81"),
        ("10.8.0.0/13", "10.15.255.255:1", "10.16.0.0:1"),
        ("10.0.0.0/8:8081", "10.255.0.1:8081", "10.255.0.1:80"),
        ("10.0.0.0/31", "10.0.0.1:1", "10.0.0.2:1"),
        ("0.0.0.0/0", "255.255.255.255:1", "[fd00::1]:1"),
        ("0.0.0.0/0", "[::ffff:10.0.0.1]:1", "node:1"),
        ("[::]/0", "[fd00::1]:1", "10.0.0.1:1"),
        ("[::]/0", "[::1]:1", "[::ffff:10.0.0.1]:1"),
        ("[fd00::]/8", "[fdff::1]:1", "[fe00::]:1"),
        ("[fd00::]/8:8081", "[fdff::1]:8081", "[fdff::1]:80"),
        ("[fd00::1]:8081", "[fd00:0::1]:8081", "[fd00::2]:8081"),
        ("[::ffff:10.0.0.0]/104", "10.255.0.1:1", "11.0.0.1:1"),
        ("[::ffff:10.0.0.1]", "[::ffff:a00:1]:1", "10.0.0.2:1"),
        ("node1", "NODE1:1", "node2:1"),
        ("Node1.Example.NET.", "node1.example.net:1", "node1.example.net.evil:1"),
        ("node1.example.net", "node1.example.net.:1", "xnode1.example.net:1"),
        ("node1:8081", "node1:8081", "node1:80"),
        ("*.example.net", "a.b.example.net:1", "example.net:1"),
        ("*.example.net", "A.EXAMPLE.NET.:1", "aexample.net:1"),
        ("*.example.net.", "a.example.net:1", "a.example.net.evil:1"),
        ("*.example.net:8081", "a.example.net:8081", "a.example.net:80"),
        ("*.net", "example.net:1", "net:1"),
        ("10.0.0.1, node1 ,*.a", "node1:1", "node2:1"),
        ("10.0.0.1,node1,*.a", "b.a:1", "a:1"),
    ] {
        let (list, url) = (allowed(list), |authority| node(&format!("http://{authority}")));
        assert!(list.allows(&url(yes)), "{list} allows {yes}");
        assert!(!list.allows(&url(no)), "{list} does not allow {no}");
    }
}

#[test]
fn a_displayed_list_can_be_parsed_again() {
    for (text, shown) in [
        ("127.0.0.0/8, [::1]", "127.0.0.0/8, [::1]"),
        ("127.0.0.0/8,[::1]", "127.0.0.0/8, [::1]"),
        ("10.0.0.1/32:81", "10.0.0.1:81"),
        ("[FD00::]/8:81", "[fd00::]/8:81"),
        ("[::ffff:10.0.0.0]/104", "10.0.0.0/8"),
        ("[::]/0", "[::]/0"),
        ("*.Example.NET.:81,Node.", "*.example.net:81, node"),
    ] {
        let list = allowed(text);
        assert_eq!(list.to_string(), shown);
        assert_eq!(AllowedNodes::parse(shown), Ok(list));
    }
    assert_eq!(allowed("127.0.0.0/8, [::1]"), AllowedNodes::loopback());
}

#[test]
fn an_invalid_pattern_is_refused_with_the_expected_forms() {
    for text in [
        "",
        ",",
        "10.0.0.1,",
        "http://10.0.0.1:8081",
        "::1",
        "fd00::/8",
        "[fd00::/8]",
        "[fd00::",
        "*",
        "*.",
        "*a.example.net",
        "a.*.example.net",
        "*.10",
        "*.*.net",
        "*.example.net/8",
        "node1/8",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:x",
        "10.0.0.1:80:80",
        "10.0.0/8",
        "0x0a.0.0.1",
        "167772161",
        "n\u{f6}de",
        "a b",
        "10.0.0.0-10.0.0.9",
    ] {
        let error = AllowedNodes::parse(text).unwrap_err();
        assert!(error.contains("is no HOST or HOST:PORT, where HOST is"), "{text}: {error}");
    }
}

#[test]
fn a_net_with_host_bits_is_refused_with_a_suggestion() {
    let error = |text| AllowedNodes::parse(text).unwrap_err();
    let meant = |net| format!("did you mean {net}?");
    assert!(error("10.1.2.3/8:81").ends_with(&meant("10.0.0.0/8")), "{}", error("10.1.2.3/8:81"));
    assert!(error("[fd00::1]/8").ends_with(&meant("[fd00::]/8")), "{}", error("[fd00::1]/8"));
    assert!(error("10.0.0.1/0").ends_with(&meant("0.0.0.0/0")));
    for text in
        ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/08", "10.0.0.0/8/8", "10.0.0.0/300"]
    {
        assert!(error(text).ends_with("0 to 32"), "{text}: {}", error(text));
    }
    assert!(error("[::]/129").ends_with("0 to 128"));
}

#[test]
fn a_list_of_too_many_patterns_is_refused() {
    let list = |count| vec!["10.0.0.1"; count].join(",");
    assert!(AllowedNodes::parse(&list(NETWORKS_MAX)).is_ok());
    let refused = Err(format!("expected at most {NETWORKS_MAX} patterns"));
    assert_eq!(AllowedNodes::parse(&list(NETWORKS_MAX + 1)), refused);
}
