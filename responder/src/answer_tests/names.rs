//! Names as long as they can be, and many zones: what is found does not depend on either.

use super::*;

/// `labels` labels of one byte in front of a name.
fn deep(labels: usize, name: &str) -> String {
    format!("{}{name}", "x.".repeat(labels))
}

/// RFC 1035 section 3.1: 255 bytes are 127 labels at most.
#[test]
fn names_of_127_labels() {
    // In front of `example`, of 9 bytes with the root, there is room for 123 labels of one byte.
    let zones =
        zones(&[("example", &format!("{} A 192.0.2.7\n*.wild A 192.0.2.8\n", deep(123, "@").trim_end_matches(".@")))]);
    let first = |question: &str| show(&send(&zones, &query(question), UDP))[..2].join(", ");
    let longest = deep(123, "example");
    assert_eq!(first(&format!("{longest} A")), format!("NOERROR aa, an {longest} 3600 A 192.0.2.7"));
    let sibling = format!("y.{}", deep(122, "example"));
    assert!(first(&format!("{sibling} A")).starts_with("NXDOMAIN aa, ns example"), "all but its first label exist");
    let none = deep(123, "example").replace("x.example", "z.example");
    assert!(first(&format!("{none} A")).starts_with("NXDOMAIN aa, ns example"), "none of its labels exist");
    let wild = deep(120, "wild.example");
    assert_eq!(first(&format!("{wild} A")), format!("NOERROR aa, an {wild} 3600 A 192.0.2.8"));
    let elsewhere = format!("{} A", deep(126, "y"));
    assert_eq!(show(&send(&zones, &query(&elsewhere), UDP)), ["REFUSED"]);
}

/// Names with more labels than the short way takes, and as many.
#[test]
fn names_of_any_number_of_labels() {
    let zones = zone("example", "*.wild A 192.0.2.8\n");
    for labels in 0..=100 {
        let name = deep(labels, "wild.example");
        let expected = if labels == 0 { "NOERROR aa".to_owned() } else { format!("an {name} 3600 A 192.0.2.8") };
        assert!(show(&send(&zones, &query(&format!("{name} A")), UDP)).contains(&expected), "{labels}");
    }
}

/// RFC 1034 section 4.3.2 step 2: the nearest zone answers, however many there are.
#[test]
fn each_of_many_zones_answers_for_itself() {
    const ZONES: usize = 600;
    let names: Vec<String> = (0..ZONES)
        .map(|index| if index % 2 == 0 { format!("z{index}.example") } else { format!("sub.z{}.example", index - 1) })
        .collect();
    let rests: Vec<String> = (0..ZONES).map(|index| format!("www A 192.0.{}.{}\n", index >> 8, index & 255)).collect();
    let texts: Vec<(&str, &str)> =
        names.iter().zip(&rests).map(|(name, rest)| (name.as_str(), rest.as_str())).collect();
    let zones = zones(&texts);
    for (index, name) in names.iter().enumerate() {
        let reply = show(&send(&zones, &query(&format!("www.{name} A")), UDP));
        let address = format!("192.0.{}.{}", index >> 8, index & 255);
        assert_eq!(reply, ["NOERROR aa".to_owned(), format!("an www.{name} 3600 A {address}")]);
        let reply = show(&send(&zones, &query(&format!("no.{name} A")), UDP));
        assert!(reply[0] == "NXDOMAIN aa" && reply[1].starts_with(&format!("ns {name} ")), "{reply:?}");
    }
}
