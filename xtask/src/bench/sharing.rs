//! `bench sharing`: what it costs to count where another thread counts.

use std::process::Command;

use anyhow::Context as _;

use super::{
    Bench, Output, beside,
    sheet::{Shape, Sheet, number},
};
use crate::setup;

const LAYOUTS: [(&str, &str); 3] = [
    ("padded", "counters on lines of their own"),
    ("packed", "counters on one line"),
    ("shared", "one atomic for both"),
];

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let respond = bench.respond()?;
    let seconds = bench.seconds(2.0, 0.3);
    let mut sheet = Sheet::new("Answers of two threads, by where they count", "answers/s", Shape::Bars);
    bench.rounds(&LAYOUTS, "counters", |(layout, name)| {
        let said = setup::output(Command::new(respond).args(["sharing", layout, &seconds]))?;
        sheet.add(name, "2 threads", said.trim().parse().context("answers a second")?);
        Ok(())
    })?;
    let [padded, packed, shared] = LAYOUTS.map(|(_, name)| name);
    let words = format!(
        "With counters on one line the rate is {}, with one atomic for both it is {}. An answer without a packet takes a thread {} ns, beside which four counts that go to and fro between two CPUs weigh much; in a server \
         that also has a network stack behind each answer, the share is less: 10 to 20 % of its CPU have been reported.",
        sheet.words("2 threads", packed, padded),
        sheet.words("2 threads", shared, padded),
        sheet.median(padded, "2 threads").map_or_else(|| "-".to_owned(), |rate| number(2e9 / rate)),
    );
    let says = [(packed, padded), (shared, padded)];
    let says = says.into_iter().filter_map(|(one, other)| Some(sheet.compare("2 threads", one, other)?.says(None)));
    Ok(Output {
        about: "Two threads answer without a network, and count four things of each answer, as workers do: in blocks of 128 bytes, in blocks that share a cache line, or by \
                atomic additions to one block."
            .to_owned(),
        says: says.collect(),
        rivals: beside(padded, &[packed, shared]),
        words,
        sheets: vec![sheet],
    })
}
