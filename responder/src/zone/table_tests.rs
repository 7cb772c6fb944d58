use super::*;
use crate::wire::message::{Counts, Rcode};

fn answer(bytes: &[u8]) -> Rendered {
    Rendered {
        rcode: Rcode::NOERROR,
        authoritative: true,
        counts: Counts { answer: 1, authority: 2, additional: 3 },
        bytes: bytes.to_vec(),
        required: 1,
        required_additional: 2,
        pointers: vec![0, 2],
    }
}

fn name(index: u32) -> Vec<u8> {
    let label = format!("host{index}");
    [&[u8::try_from(label.len()).unwrap()], label.as_bytes(), b"\x07example\0"].concat()
}

fn find<'a>(table: &'a Table, name: &[u8]) -> Option<Node<'a>> {
    let mut hashes = [0; LABELS_MAX + 1];
    table.hash_any(AnyRoom::empty().read(name, 0).unwrap(), &mut hashes);
    table.find(hashes[0], name)
}

/// A thousand names, in two parts.
fn nodes() -> Nodes {
    let mut parts = [Nodes::with_capacity(1000), Nodes::with_capacity(0)];
    for index in 0..1000 {
        let answers = [(1, answer(b"one")), (28, answer(&name(index)))];
        parts[usize::from(index >= 600)].insert(&name(index), Flags::CUT, index, &answers);
    }
    let [mut nodes, rest] = parts;
    nodes.append(rest);
    nodes
}

#[test]
fn what_goes_in_comes_out() {
    let table = Table::new(nodes());
    for index in 0..1000 {
        let node = find(&table, &name(index)).unwrap();
        assert_eq!((node.name(), node.zone()), (name(index).as_slice(), index as usize));
        assert!(node.is(Flags::CUT) && !node.is(Flags::APEX));
        let found = node.answer(28).unwrap();
        assert_eq!((found.bytes(), found.required(), found.rcode()), (name(index).as_slice(), 1, Rcode::NOERROR));
        assert_eq!((found.counts(), found.required_additional()), (answer(b"").counts, 2));
        assert_eq!(found.pointers().collect::<Vec<_>>(), [0, 2]);
        assert!(found.is_authoritative() && node.answer(2).is_none());
    }
    assert!(find(&table, &name(1000)).is_none());
    assert!(find(&Table::new(Nodes::with_capacity(0)), &name(0)).is_none());
}

/// Names are told apart by their bytes, whatever their hashes are.
#[test]
fn names_whose_hashes_are_the_same_are_found() {
    let mut nodes = Nodes::with_capacity(100);
    (0..100).for_each(|index| nodes.insert(&name(index), Flags::default(), index, &[]));
    nodes.insert(b"\x01*\x05host7\x07example\0", Flags::default(), 100, &[]);
    let places = nodes.places.clone();
    let mut table = Table::new(nodes);
    table.key = Key::of_one_value();
    table.buckets.fill(0);
    table.put(&places).unwrap();
    for index in 0..100 {
        assert_eq!(find(&table, &name(index)).unwrap().zone(), index as usize);
    }
    assert!(find(&table, &name(100)).is_none());
    assert_eq!(table.wildcard(0, find(&table, &name(7)).unwrap()).unwrap().zone(), 100);
    assert!(table.wildcard(0, find(&table, &name(8)).unwrap()).is_none());
}

#[test]
fn a_key_under_which_too_many_names_are_in_a_row_is_not_taken() {
    let nodes = nodes();
    let places = nodes.places.clone();
    let mut table = Table::new(nodes);
    table.key = Key::of_one_value();
    table.buckets.fill(0);
    assert!(table.put(&places).is_none());
}

/// Zones at many depths, some below others with nothing between them, and names of every depth asked for.
#[test]
fn the_nearest_name_is_found_from_any_depth() {
    let labels = |text: &str| text.bytes().map(|letter| [1, letter]).collect::<Vec<_>>().concat();
    let wire = |text: &str| [labels(text), vec![0]].concat();
    let long = "x".repeat(118);
    // Each with the apex of its zone.
    let names = [
        ("b", "b"),
        ("ab", "b"),
        ("aab", "b"),
        ("cccdab", "cccdab"),
        ("zcccdab", "cccdab"),
        ("aaaaaaaaaaaz", "aaaaaaaaaaaz"),
        (&format!("{long}b"), &format!("{long}b")),
    ];
    let mut nodes = Nodes::with_capacity(0);
    for (index, (name, apex)) in (0..).zip(names) {
        nodes.insert(&wire(name), if name == apex { Flags::APEX } else { Flags::default() }, index, &[]);
    }
    let table = Table::new(nodes);
    let mut hashes = [0; LABELS_MAX + 1];
    for (base, _) in names {
        for cut in 0..=base.len() {
            for more in ["", "q", "a", "qq", "qqqqqqq", "qqqqqqqq"] {
                let asked = format!("{more}{}", &base[cut..]);
                let mut room = AnyRoom::empty();
                let wire = wire(&asked);
                let name = room.read(&wire, 0).unwrap();
                table.hash_any(name, &mut hashes);
                let found = table.nearest(name, &hashes[..=asked.len()]);
                let expected = (0..=asked.len()).find_map(|lacks| {
                    names.iter().position(|(name, _)| *name == &asked[lacks..]).map(|index| (lacks, index))
                });
                assert_eq!(found.map(|(lacks, node)| (lacks, node.zone())), expected, "{asked}");
            }
        }
    }
}
