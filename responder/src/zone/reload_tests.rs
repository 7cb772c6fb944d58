//! Zones that change, break, come and go.

use std::fs;

use super::*;
use crate::{
    answer::{Limits, Outcome as Answered, Transport, respond},
    zone::tests::Folder,
};

fn zone(serial: u32, rest: &str) -> String {
    format!("$TTL 60\n@ SOA ns.x. host.x. {serial} 7200 3600 1209600 300\n@ NS ns.x.\n{rest}\n")
}

/// Outcomes in short: `name before>now`, and the errors.
fn shown(reloaded: &Reloaded, folder: &Folder) -> Vec<String> {
    let show = |outcome: &Outcome| {
        let serial = |serial: Option<u32>| serial.map_or("-".to_owned(), |serial| serial.to_string());
        let now = outcome.now.as_ref().map(|now| now.serial);
        let errors = outcome.errors.join("; ").replace(&format!("{}/", folder.0.display()), "");
        format!("{} {}>{} {errors}", outcome.name, serial(outcome.before), serial(now)).trim_end().to_owned()
    };
    reloaded.outcomes.iter().map(show).collect()
}

fn serials(zones: &Zones) -> Vec<String> {
    zones.summary().iter().map(|zone| format!("{} {}", zone.name, zone.serial)).collect()
}

#[test]
fn a_zone_with_an_error_stays_as_it_was_and_the_others_change() {
    let folder = Folder::new("reload-error", &[("a", &zone(1, "w A 1.1.1.1")), ("b", &zone(1, "w A 1.1.1.1"))]);
    let sources = [folder.source("a", "a"), folder.source("B.", "b")];
    let (contents, zones) = Contents::load(&sources).unwrap();
    assert_eq!(serials(&zones), ["a. 1", "b. 1"]);

    folder.write("a", &zone(2, "w A 1.1.1"));
    folder.write("b", &zone(2, "w A 2.2.2.2"));
    let reloaded = contents.reload(&sources, None);
    assert_eq!(
        shown(&reloaded, &folder),
        ["a. 1>- a:4:5: A: \"1.1.1\": expected an IPv4 address such as 192.0.2.1", "b. 1>2"]
    );
    let (contents, zones) = reloaded.next.unwrap();
    assert_eq!(serials(&zones), ["a. 1", "b. 2"]);

    // An error of the zone and not of its text, and then none.
    folder.write("a", &zone(3, "w CNAME x.\nw A 1.1.1.1"));
    let reloaded = contents.reload(&sources, None);
    assert_eq!(shown(&reloaded, &folder)[0].split(' ').take(3).collect::<Vec<_>>(), ["a.", "1>-", "a:4:3:"]);
    let (contents, zones) = reloaded.next.unwrap();
    assert_eq!(serials(&zones), ["a. 1", "b. 2"]);
    folder.write("a", &zone(4, ""));
    let (_, zones) = contents.reload(&sources, None).next.unwrap();
    assert_eq!(serials(&zones), ["a. 4", "b. 2"]);
}

#[test]
fn one_zone_is_reloaded_and_the_others_are_not_read() {
    let folder = Folder::new("reload-one", &[("a", &zone(1, "")), ("b", &zone(1, ""))]);
    let sources = [folder.source("a", "a"), folder.source("b", "b")];
    let (contents, _) = Contents::load(&sources).unwrap();
    folder.write("a", &zone(2, ""));
    folder.write("b", "nonsense");
    let reloaded = contents.reload(&sources, Some("A"));
    assert_eq!(shown(&reloaded, &folder), ["a. 1>2"]);
    let (contents, zones) = reloaded.next.unwrap();
    assert_eq!(serials(&zones), ["b. 1", "a. 2"]);
    let reloaded = contents.reload(&sources, Some("c"));
    assert!(reloaded.next.is_none());
    assert_eq!(shown(&reloaded, &folder), ["c ->- zone c is not configured: expected a name as in `responder status`"]);
}

#[test]
fn zones_come_and_go() {
    let folder = Folder::new("reload-come", &[("a", &zone(1, "")), ("b", &zone(1, "")), ("c", "x")]);
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.source(name, name));
    let (contents, _) = Contents::load(&[a.clone(), b.clone()]).unwrap();
    let reloaded = contents.reload(&[b.clone(), c], None);
    assert_eq!(
        shown(&reloaded, &folder),
        [
            "a. 1>-",
            "b. 1>1",
            "c. ->- c:1:1: the entry ends where a type was expected (the file ends with this line and without a line feed: is it cut short?)"
        ]
    );
    let (contents, zones) = reloaded.next.unwrap();
    assert_eq!(serials(&zones), ["b. 1"]);
    let (_, zones) = contents.reload(&[a, b], None).next.unwrap();
    assert_eq!(serials(&zones), ["a. 1", "b. 1"]);
}

/// One zone alone is not kept in memory: its old table simply stays.
#[test]
fn the_only_zone_with_an_error_changes_nothing() {
    let folder = Folder::new("reload-only", &[("a", &zone(1, "")), ("b", &zone(1, ""))]);
    let [a, b] = ["a", "b"].map(|name| folder.source(name, name));
    let (contents, _) = Contents::load(std::slice::from_ref(&a)).unwrap();
    folder.write("a", "nonsense\n");
    let reloaded = contents.reload(&[a, b], None);
    assert!(reloaded.next.is_none());
    assert_eq!(
        shown(&reloaded, &folder),
        [
            "a. 1>- a:1:1: the entry ends where a type was expected",
            "b. ->- b: not loaded, since another zone has errors"
        ]
    );
}

#[test]
fn a_start_is_all_or_nothing() {
    let folder = Folder::new("reload-start", &[("a", &zone(1, "")), ("b", "x\n")]);
    let [a, b] = ["a", "b"].map(|name| folder.source(name, name));
    assert_eq!(Contents::load(&[a.clone(), b]).unwrap_err().lines().len(), 1);
    let error = Contents::load(&[a.clone(), Source { name: "A.".into(), ..a }]).unwrap_err();
    assert!(error.lines()[0].ends_with("a: zone A. is given twice"), "{error}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
}

/// A name is in a zone of its own while that is served, and delegated when it is not.
#[test]
fn a_child_that_cannot_be_loaded_is_delegated_by_its_parent() {
    let folder = Folder::new("reload-child", &[("p", &zone(1, "c NS ns.c\nns.c A 1.1.1.1")), ("c", &zone(1, ""))]);
    let [p, c] = [folder.source("p", "p"), folder.source("c.p", "c")];
    let (contents, _) = Contents::load(std::slice::from_ref(&p)).unwrap();
    folder.write("c", "@ A 1.1.1.1\n");
    let reloaded = contents.reload(&[p, c], None);
    assert_eq!(shown(&reloaded, &folder).iter().map(|line| &line[..6]).collect::<Vec<_>>(), ["p. 1>1", "c.p. -"]);
    assert_eq!(serials(&reloaded.next.unwrap().1), ["p. 1"]);
}

/// RCODE of the answer to `name` A and the extended error in it.
fn asked(zones: &Zones, name: &[u8]) -> (u8, Option<u16>) {
    let question = [name, b"\0\0\x01\0\x01"].concat();
    let opt = [0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0];
    let query = [&[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1], question.as_slice(), &opt].concat();
    let mut message = [0; 512];
    message[..query.len()].copy_from_slice(&query);
    let limits = Limits { transport: Transport::Udp, udp_payload_max: 1232 };
    let Answered::Reply(length) = respond(zones, &mut message, query.len(), limits) else { panic!("it is answered") };
    // The option's code, its length, the number.
    let code = message[..length].ends_with(&[0, 15, 0, 2, message[length - 2], message[length - 1]]);
    (message[3] & 15, code.then(|| u16::from_be_bytes([message[length - 2], message[length - 1]])))
}

/// RFC 8914 section 4.25: the server cannot answer with data for a zone that it is configured to support.
#[test]
fn a_zone_that_was_never_loaded_is_ours_and_has_no_answers() {
    const SERVFAIL: (u8, Option<u16>) = (2, Some(24));
    const REFUSED: (u8, Option<u16>) = (5, Some(20));
    let folder = Folder::new("reload-never", &[("a", &zone(1, "")), ("b", &zone(1, "")), ("c", "x\n")]);
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.source(name, name));
    let (contents, zones) = Contents::load(&[a.clone(), b.clone()]).unwrap();
    assert_eq!(asked(&zones, b"\x01w\x01c"), REFUSED);
    let all = [a, b, c];
    let (contents, zones) = contents.reload(&all, None).next.unwrap();
    for name in [&b"\x01c"[..], b"\x01C", b"\x01w\x01c", b"\x01v\x01w\x01c"] {
        assert_eq!(asked(&zones, name), SERVFAIL, "{name:?}");
    }
    assert_eq!((asked(&zones, b"\x01d"), asked(&zones, b"\x01w\x01a")), (REFUSED, (3, None)));
    // As long as it is broken, whatever else is reloaded.
    let (contents, zones) = contents.reload(&all, Some("a")).next.unwrap();
    assert_eq!(asked(&zones, b"\x01c"), SERVFAIL);
    folder.write("c", &zone(1, ""));
    let (contents, zones) = contents.reload(&all, Some("c")).next.unwrap();
    assert_eq!(asked(&zones, b"\x01c"), (0, None));
    let (_, zones) = contents.reload(&all[..2], None).next.unwrap();
    assert_eq!(asked(&zones, b"\x01c"), REFUSED);
}
