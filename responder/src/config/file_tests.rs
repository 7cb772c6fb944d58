//! Configuration files: what they mean, and the errors of those that cannot be read.

use super::*;
use crate::{
    answer::policy::{AnyPolicy, Cookies, Order, Policy},
    cli::{Io, Switch, XdpMode},
    guard::{acl::Action, rrl},
    service::Rules,
};

fn errors(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    parse(text, Path::new("/etc"), &Secrets::random(), &mut problems);
    problems.into_iter().map(|(at, message)| format!("{}: {message}", 1 + text[..at].matches('\n').count())).collect()
}

#[test]
fn every_key_has_its_setting() {
    let text = r#"
        interfaces = ["eth0", "eth1"]
        listen = ["192.0.2.53", "[2001:db8::53]:5353"]
        zone_directory = "zones"
        queues = "0-2"
        cpus = "auto"
        io = "socket"
        xdp_mode = "generic"
        zero_copy = "on"
        service = "echo"
        vlan = "5,6.7"
        busy_poll = 20
        verify_checksums = "off"
        ring_frames = 8192
        control = "/run/r.sock"
        metrics = "[::1]:9153"
        log_steering = true
        [zones]
        "example.com" = "db.example"
    "#;
    let mut problems = Vec::new();
    let settings = parse(text, Path::new("/etc"), &Secrets::random(), &mut problems);
    assert_eq!(problems, []);
    assert_eq!(settings.interfaces.unwrap(), ["eth0", "eth1"]);
    assert_eq!(settings.listen.unwrap().len(), 2);
    assert_eq!(settings.zone_directory, Some("/etc/zones".into()));
    assert_eq!(settings.queues.unwrap().list(), Some(vec![0, 1, 2]));
    assert_eq!(settings.cpus.unwrap().list(), None);
    assert_eq!((settings.io, settings.xdp_mode), (Some(Io::Socket), Some(XdpMode::Generic)));
    assert_eq!(settings.vlans.unwrap().len(), 2);
    assert_eq!((settings.busy_poll_us, settings.ring_frames), (Some(20), Some(8192)));
    assert_eq!(settings.verify_checksums, Some(Switch::Off));
    assert_eq!(settings.control, Some("/run/r.sock".into()));
    assert_eq!(settings.metrics, Some("[::1]:9153".parse().unwrap()));
    assert_eq!(settings.log_steering, Some(true));
    assert_eq!(settings.zones.unwrap(), [Source { name: "example.com".into(), file: "/etc/db.example".into() }]);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let cases: [(&str, &[&str]); 9] = [
        ("", &[]),
        ("io = \"xpd\"", &["1: io = \"xpd\": expected xdp, socket; did you mean xdp?"]),
        ("\nio = 3", &["2: io = 3: expected a string in quotes"]),
        ("ring_frames = -1", &["1: ring_frames = -1: expected a number from 1 to 4294967294"]),
        (
            "listen = [\n \"a\",\n \"192.0.2.1:0\"]",
            &[
                "2: listen = \"a\": expected an IP address, or an address and a port as in 192.0.2.53:53 or [2001:db8::53]:53",
                "3: listen = \"192.0.2.1:0\": port 0 cannot be asked",
            ],
        ),
        ("interfaces = \"a\"", &["1: interfaces = \"a\": expected an array of strings, as in [\"a\", \"b\"]"]),
        ("zones = 1", &["1: zones = 1: expected [zones]"]),
        ("[zones]\n\"a.b\" = \"\"", &["2: zones.a.b = \"\": expected a path"]),
        ("log_steering = 1", &["1: log_steering = 1: expected true or false"]),
    ];
    for (text, expected) in cases {
        assert_eq!(errors(text), expected, "{text:?}");
    }
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_one() {
    let found = errors("interfaecs = []\ncolour = 1\n");
    assert_eq!(found.len(), 2);
    assert!(found[1].starts_with("1: unknown key interfaecs: expected one of interfaces, listen, "), "{}", found[1]);
    assert!(found[1].ends_with("; did you mean interfaces?"), "{}", found[1]);
    assert!(found[0].starts_with("2: unknown key colour:") && !found[0].contains("did you mean"), "{}", found[0]);
}

#[test]
fn what_is_no_toml_is_said_with_its_line() {
    let found = errors("io = \"xdp\"\nlisten = [\n");
    assert!(found[0].starts_with("2: ") || found[0].starts_with("3: "), "{found:?}");
    assert!(errors("io = 'xdp'\nio = 'xdp'")[0].starts_with("2: "));
}

fn rules(text: &str) -> Rules {
    let mut problems = Vec::new();
    let settings = parse(text, Path::new("/etc"), &Secrets::random(), &mut problems);
    assert_eq!(problems, [], "{text}");
    settings.rules.unwrap()
}

#[test]
fn rules_of_answers() {
    let text = r#"
        udp_payload_max = 4096
        nsid = "0x6e7331"
        identity = "ns1"
        version = "v"
        any = "hinfo"
        rrset_order = "rotate"
        cookies = "required"
        cookie_secret = "000102030405060708090a0b0c0d0e0F"
    "#;
    let found = rules(text).policy;
    assert_eq!((found.udp_payload_max, found.any, found.rrset_order), (4096, AnyPolicy::Hinfo, Order::Rotate));
    assert_eq!(found.nsid.unwrap().bytes(), b"ns1");
    assert_eq!((found.identity.unwrap().bytes(), found.version.unwrap().bytes()), (&b"ns1"[..], &b"v"[..]));
    let current = std::array::from_fn(|index| u8::try_from(index).unwrap());
    assert_eq!(found.cookies, Cookies::Required(Secrets { current, previous: None }));
    assert_eq!(rules(""), Rules::default());
}

#[test]
fn rules_of_clients() {
    let text = r#"
        [rate_limit]
        responses_per_second = 5
        window = 1
        slip = 0
        ipv4_prefix = 32
        ipv6_prefix = 64
        accounts = 2048
        exempt = ["192.0.2.0/24"]
        [[acl]]
        prefix = "192.0.2.0/24"
        action = "drop"
        [[acl]]
        prefix = "192.0.2.1"
        action = "allow"
    "#;
    let found = rules(text);
    let rrl = rrl::Settings {
        rate: 5,
        window_s: 1,
        slip: 0,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        accounts: 2048,
        exempt: vec!["192.0.2.0/24".parse().unwrap()],
    };
    assert_eq!(found.rrl, Some(rrl));
    let action = |client: &str| found.acl.action(client.parse().unwrap());
    assert_eq!((action("192.0.2.2"), action("192.0.2.1"), action("::1")), (Action::Drop, Action::Allow, Action::Allow));
    assert_eq!(rules("[rate_limit]").rrl, Some(rrl::Settings::default()));
}

#[test]
fn rules_that_are_wrong() {
    let long = "x".repeat(129);
    let cases: Vec<(String, &[&str])> = vec![
        ("udp_payload_max = 511".into(), &["1: udp_payload_max = 511: expected a number from 512 to 65535"]),
        ("nsid = \"0x1\"".into(), &["1: nsid = \"0x1\": expected pairs of hexadecimal digits behind 0x"]),
        ("identity = \"\"".into(), &["1: identity = \"\": it has 0 bytes: expected 1 to 128"]),
        (format!("version = \"{long}\""), &["it has 129 bytes: expected 1 to 128"]),
        ("any = \"no\"".into(), &["1: any = \"no\": expected rrset, hinfo"]),
        (
            "cookies = \"require\"".into(),
            &["1: cookies = \"require\": expected off, on, required; did you mean required?"],
        ),
        ("cookie_secret = \"00\"".into(), &["1: cookie_secret = ...: expected 32 hexadecimal digits"]),
        (
            "cookie_secret_file = \"/nowhere\"".into(),
            &["1: cookie_secret_file = \"/nowhere\": cannot read /nowhere: No such file or directory (os error 2)"],
        ),
        (
            "[rate_limit]\nslop = 1".into(),
            &[
                "2: unknown key rate_limit.slop: expected one of responses_per_second, window, slip, ipv4_prefix, ipv6_prefix, accounts, exempt; did you mean slip?",
            ],
        ),
        (
            "[rate_limit]\nexempt = [\"192.0.2.1/24\"]".into(),
            &[
                "2: rate_limit.exempt = \"192.0.2.1/24\": `192.0.2.1/24` has bits set behind its length: did you mean 192.0.2.0/24?",
            ],
        ),
        ("rate_limit = 5".into(), &["1: rate_limit = 5: expected [rate_limit]"]),
        (
            "[[acl]]\naction = \"deny\"\n".into(),
            &[
                "2: acl.action = \"deny\": expected allow, refuse, drop",
                "1: acl: expected a prefix and an action, as in prefix = \"192.0.2.0/24\" and action = \"refuse\"",
            ],
        ),
        ("[acl]".into(), &["1: acl = a table: expected tables: [[acl]]"]),
    ];
    for (text, expected) in cases {
        let found = errors(&text);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.ends_with(expected), "{text}\n  found    {found}\n  expected {expected}");
        }
    }
}

/// RFC 9018 section 5: the secret before is taken too.
#[test]
fn cookie_secrets_of_their_own_file() {
    let file = std::env::temp_dir().join(format!("responder-secret-{}", std::process::id()));
    let secret = |byte: u8| format!("{byte:02x}").repeat(16);
    fs::write(&file, format!("{}\n\n{}\n", secret(1), secret(2))).unwrap();
    let text = format!("cookies = \"on\"\ncookie_secret_file = {:?}\n", file.display().to_string());
    let expected = Secrets { current: [1; 16], previous: Some([2; 16]) };
    assert_eq!(rules(&text).policy.cookies, Cookies::On(expected));
    assert!(errors(&format!("{text}cookie_secret = \"{}\"", secret(3)))[0].contains("expected one of them"));
    fs::write(&file, "").unwrap();
    assert!(errors(&text)[0].contains("expected a line with the secret"));
    fs::remove_file(&file).unwrap();
}

/// Every key of the example, those in comments too, is one that the reader knows, and its zone loads.
#[test]
fn the_example_is_true() {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"));
    let file = directory.join("responder.toml");
    let settings = read(&file, &Secrets::random()).unwrap_or_else(|error| panic!("{error:#}"));
    crate::zone::Zones::load(&settings.zones.unwrap()).unwrap();
    assert_eq!(settings.rules.unwrap().policy, Policy::default());

    let text = fs::read_to_string(&file).unwrap();
    let is_key = |line: &str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
    let uncommented: Vec<&str> =
        text.lines().map(|line| line.strip_prefix("# ").filter(|rest| is_key(rest)).unwrap_or(line)).collect();
    assert!(uncommented.contains(&"nsid = \"ns1.fra\""));
    let mut found = errors(&uncommented.join("\n"));
    found.retain(|error| !error.contains("cookie_secret"));
    assert_eq!(found, [""; 0]);
    // And it has every key: what the reader asks for stands in the message about one that it does not know.
    let message = errors("unheard_of = 1").remove(0);
    let known = message.split("expected one of ").nth(1).unwrap();
    for key in known.split(", ") {
        let has = |line: &&str| line.starts_with(&format!("{key} = ")) || line.trim_matches(['[', ']']) == key;
        assert!(uncommented.iter().any(has), "{key} is not in the example");
    }
}

/// The example file is where an operator looks a key up.
#[test]
fn the_example_has_every_key_and_no_other() {
    let example = include_str!("../../../examples/responder.toml");
    let uncommented: String = example
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            // A commented-out key, not a sentence.
            Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // It names a file with a secret that is not there, and has that secret itself.
    let uncommented = uncommented.replace("cookie_secret_file", "# cookie_secret_file");
    assert_eq!(errors(&uncommented), [""; 0]);

    for (table, head) in [("", ""), ("tcp.", "[tcp]\n"), ("rate_limit.", "[rate_limit]\n"), ("acl.", "[[acl]]\n")] {
        let found = errors(&format!("{head}zzz = 1\n"));
        let unknown = found.iter().find_map(|error| error.split_once("expected one of ")).map(|(_, keys)| keys);
        let keys = unknown.unwrap_or_else(|| panic!("{found:?}")).split("; ").next().unwrap();
        for key in keys.split(", ") {
            let forms = [format!("{key} = "), format!("# {key} = "), format!("[{key}]"), format!("[[{key}]]")];
            let is_there = example.lines().any(|line| forms.iter().any(|form| line.starts_with(form)));
            assert!(is_there, "{table}{key} is not in the example");
        }
    }
}
