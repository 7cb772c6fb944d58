//! `bench latency`: how long a query waits for its answer, at shares of what each server can do, and at the same rate for all.

use anyhow::Context as _;

use super::{
    Bench, Output,
    sheet::{Bound, Shape, Sheet},
    stage::Subject,
};

const SUBJECTS: [Subject; 4] = [Subject::Xdp, Subject::KnotXdp, Subject::Socket, Subject::KnotSocket];
const SHARES: [u32; 5] = [10, 25, 50, 75, 90];
const QUANTILES: [(&str, &str); 4] = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p99_9")];

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    let mut peak = Sheet::new("Peak rate, for the shares below", "answers/s", Shape::Table);
    let search = bench.search(0.3);
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    bench.rounds(&SUBJECTS, "peak", |subject| {
        let running = stage.start(subject, &[], false)?;
        let asked = stage.ask(&running, &search)?;
        peak.add(subject.name(), "peak", asked.figure("/peak/answered_per_s"));
        Ok(())
    })?;
    let line = || Shape::Lines { x: "% of the server's own peak".to_owned(), log: false };
    let mut sheets = QUANTILES.map(|(name, _)| Sheet::new(&format!("Latency, {name}"), "us", line()));
    let seconds = bench.seconds(1.5, 0.3);
    let ask = |subject: Subject, rate: f64, column: &str, sheets: &mut [Sheet]| -> anyhow::Result<()> {
        let running = stage.start(subject, &[], false)?;
        let asked = stage.ask(&running, &["--rate", &format!("{rate:.0}"), "--for", &seconds])?;
        for ((_, field), sheet) in QUANTILES.iter().zip(sheets) {
            sheet.add(subject.name(), column, asked.figure(&format!("/latency_us/{field}")));
        }
        Ok(())
    };
    let shares = if bench.quick { &SHARES[2..3] } else { &SHARES[..] };
    for share in shares {
        bench.rounds(&SUBJECTS, &format!("{share} % of the peak"), |subject| {
            let rate = peak.median(subject.name(), "peak").context("it has a peak")? * f64::from(*share) / 100.0;
            ask(subject, rate.max(1.0), &format!("{share} %"), &mut sheets)
        })?;
    }
    let knot = peak.median(Subject::KnotXdp.name(), "peak").context("Knot has a peak")?;
    let mut same = [Sheet::new("Latency at half of the peak of Knot, XDP", "us", Shape::Bars)];
    let mut of_one = QUANTILES.map(|(name, _)| Sheet::new(name, "us", Shape::Table));
    bench
        .rounds(&SUBJECTS[..2], "half of Knot's peak", |subject| ask(subject, knot / 2.0, "same rate", &mut of_one))?;
    for (sheet, (name, _)) in of_one.iter().zip(QUANTILES) {
        for row in &sheet.rows {
            row.cells.iter().flat_map(|cell| &cell.runs).for_each(|run| same[0].add(&row.name, name, *run));
        }
    }
    let [xdp, knot] = [Subject::Xdp, Subject::KnotXdp].map(Subject::name);
    let says = ["p50", "p99"].into_iter().filter_map(|column| {
        Some(same[0].compare(column, xdp, knot)?.says((column == "p99").then_some(Bound::AtMost(1.0))))
    });
    let says = says.collect();
    Ok(Output {
        about: "An open loop asks at shares of what each server answers at its best. A latency counts from when the query was due; the reply's time is taken by \
                an XDP program at the client. The generator sleeps at least 20 us between two batches, which is in the figures of all."
            .to_owned(),
        sheets: [peak].into_iter().chain(sheets).chain(same).collect(),
        says,
    })
}
