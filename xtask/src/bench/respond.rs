//! `bench respond`: instructions that an answer takes, counted by callgrind.
//!
//! Instructions, not time: the same in every run and on every machine of the kind, so that a change of a few is seen.

use std::process::Command;

use super::{
    ANSWERS, Bench, KINDS, LOOP, Output, instructions, per_answer,
    sheet::{Shape, Sheet, number},
};
use crate::setup;

/// Counts.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let respond = bench.respond()?;
    let kinds = if bench.quick { &KINDS[1..2] } else { &KINDS[..] };
    let mut sheet = Sheet::new("Instructions of an answer", "instructions", Shape::Bars);
    // Each run has a hash key of its own, and under one in some dozens a name of the zone is in the way of another.
    bench.rounds(kinds, "instructions", |kind| {
        let none = instructions(respond, &[LOOP, kind, ANSWERS])?;
        let all = instructions(respond, &[kind, ANSWERS])?;
        sheet.add(kind, "instructions", per_answer(all, none)?);
        Ok(())
    })?;
    let says = match bench.quick {
        true => Vec::new(),
        false => vec![setup::output(Command::new(respond).arg("threads"))?.trim().to_owned()],
    };
    let of = |kind| sheet.median(kind, "instructions").map_or_else(|| "-".to_owned(), number);
    let words = format!(
        "An answer with a record takes {} instructions, {} with EDNS; that a name does not exist takes {}, and the worst query {}. A flood of the worst costs as many times more than one of names \
         that exist.",
        of("exact"),
        of("exact-edns"),
        of("nxdomain"),
        of("127-labels"),
    );
    Ok(Output {
        about: "What the answer engine executes, from the query's first byte to the reply's last: no packet, no system call. The loop around it is not counted. The \
                last two are the worst there is: QNAMEs of 121 and 127 labels, in a zone that has a name of 120 labels, so that every name above them must be \
                hashed."
            .to_owned(),
        sheets: vec![sheet],
        rivals: Vec::new(),
        words,
        says,
    })
}
