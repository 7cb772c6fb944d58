//! Zones that change, break, come and go.

use std::fs;

use super::*;
use crate::zone::tests::Folder;

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
