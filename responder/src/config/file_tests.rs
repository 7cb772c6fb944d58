//! Configuration files: what they mean, and the errors of those that cannot be read.

use super::*;
use crate::cli::{Io, Switch, XdpMode};

fn errors(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    parse(text, Path::new("/etc"), &mut problems);
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
        log_steering = true
        [zones]
        "example.com" = "db.example"
    "#;
    let mut problems = Vec::new();
    let settings = parse(text, Path::new("/etc"), &mut problems);
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
        ("zones = 1", &["1: zones = 1: expected a table: [zones]"]),
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
