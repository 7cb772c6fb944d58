//! `bench latency`: how long a query waits for its answer, at shares of what each server can do, and at the same rate for all.

use anyhow::Context as _;

use super::{
    Bench, Output,
    sheet::{Bound, GENERATORS, Shape, Sheet, number},
    stage::{Running, Subject},
};

const SUBJECTS: [Subject; 4] = [Subject::Xdp, Subject::KnotXdp, Subject::Socket, Subject::KnotSocket];
const SHARES: [u32; 5] = [10, 25, 50, 75, 90];
const QUANTILES: [(&str, &str); 4] = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p99_9")];

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    let mut peak = Sheet::new("Peak rate, just before it was asked at shares of it", "answers/s", Shape::Table);
    let search = bench.search(0.3);
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let line = || Shape::Lines { x: "% of the server's own peak".to_owned(), log: false };
    let mut sheets = QUANTILES.map(|(name, _)| Sheet::new(&format!("Latency, {name}"), "us", line()));
    let mut own = Sheet::new("Of it the generator's own, p99", GENERATORS, Shape::Table);
    let seconds = bench.seconds(1.5, 0.3);
    let ask = |running: &Running<'_>, rate: f64| {
        stage.ask(running, &["--rate", &format!("{:.0}", rate.max(1.0)), "--for", &seconds])
    };
    let shares = if bench.quick { &SHARES[2..3] } else { &SHARES[..] };
    bench.rounds(&SUBJECTS, "shares of the peak", |subject| {
        let name = subject.name();
        let running = stage.start(subject, &[], false)?;
        let most = stage.ask(&running, &search)?.figure("/peak/answered_per_s");
        peak.add(name, "peak", most);
        for share in shares {
            let asked = ask(&running, most * f64::from(*share) / 100.0)?;
            let column = format!("{share} %");
            for ((_, field), sheet) in QUANTILES.iter().zip(&mut sheets) {
                sheet.add(name, &column, asked.figure(&format!("/latency_us/{field}")));
            }
            own.add(name, &column, asked.figure("/own_lag_us/p99"));
        }
        Ok(())
    })?;
    let knot = peak.median(Subject::KnotXdp.name(), "peak").context("Knot has a peak")?;
    let mut same = Sheet::new("Latency at half of the peak of Knot, XDP", "us", Shape::Bars);
    bench.rounds(&SUBJECTS[..2], "half of Knot's peak", |subject| {
        let asked = ask(&stage.start(subject, &[], false)?, knot / 2.0)?;
        for (quantile, field) in QUANTILES {
            same.add(subject.name(), quantile, asked.figure(&format!("/latency_us/{field}")));
        }
        Ok(())
    })?;
    let [xdp, knot] = [Subject::Xdp, Subject::KnotXdp].map(Subject::name);
    let says = ["p50", "p99"].into_iter().filter_map(|column| {
        Some(same.compare(column, xdp, knot)?.says((column == "p99").then_some(Bound::AtMost(1.0))))
    });
    let says = says.collect();
    let [half, ninety] = ["50 %", "90 %"];
    let shown = |sheet: &Sheet, column: &str| sheet.median(xdp, column).map_or_else(|| "-".to_owned(), number);
    let words = format!(
        "At the same rate for both, half of what Knot does, our p99 is {}. At half of each one's own peak it is {}; at {ninety} of it, {}. These are other rates for each server. Of our p99 at {ninety}, \
         which is {} us, the generator itself has {} us: it shares the machine with the server. At low rates what is left of a latency is sleep: of the generator, and of a server that waits for its \
         next packet.",
        same.words("p99", xdp, knot),
        sheets[2].words(half, xdp, knot),
        sheets[2].words(ninety, xdp, knot),
        shown(&sheets[2], ninety),
        shown(&own, ninety),
    );
    Ok(Output {
        about: "An open loop asks at shares of what each server answers at its best, as a search has found just before. A latency counts from when the query was due; the reply's time is taken by \
                an XDP program at the client. The generator sleeps at least 20 us between two batches, which is in the figures of all."
            .to_owned(),
        sheets: [peak].into_iter().chain(sheets).chain([own, same]).collect(),
        rivals: vec![(xdp, knot), (Subject::Socket.name(), Subject::KnotSocket.name())],
        words,
        says,
    })
}
