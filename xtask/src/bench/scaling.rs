//! `bench scaling`: the old question. Threads on one shared socket, on sockets picked by a hash, on sockets picked by the receiving CPU, and on the bypass.

use super::{
    Bench, Output, beside, cpu,
    sheet::{Bound, Shape, Sheet},
    stage::Subject,
};
use crate::lab::Side;

const MODES: [(&str, Subject, &[&str]); 4] = [
    ("one shared socket", Subject::Socket, &["--sockets", "shared"]),
    ("sockets by hash", Subject::Socket, &["--sockets", "hash"]),
    ("sockets by receiving CPU", Subject::Socket, &["--sockets", "per-cpu"]),
    ("bypass", Subject::Xdp, &[]),
];

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    let mut peak = Sheet::new("Peak rate", "answers/s", Shape::Bars);
    let mut switches = Sheet::new("Context switches at the peak", "per 1,000 answers", Shape::Bars);
    let mut drops =
        Sheet::new("Datagrams dropped by full sockets while the peak was searched for", "datagrams", Shape::Table);
    let search = bench.search(0.3);
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let queries = stage.queries().to_string_lossy();
    let subjects: Vec<(usize, usize)> =
        (1..=2).flat_map(|threads| (0..MODES.len()).map(move |mode| (threads, mode))).collect();
    bench.rounds(&subjects, "threads and sockets", |(threads, mode)| {
        let (name, subject, flags) = MODES[mode];
        let column = format!("{threads} {}", if threads == 1 { "thread" } else { "threads" });
        let cpus = ["0", "0,1"][threads - 1];
        let queues = if subject == Subject::Xdp { vec!["--queues", ["0", "0-1"][threads - 1]] } else { Vec::new() };
        let flags = [flags, &["--cpus", cpus][..], &queues].concat();
        // One queue of the bypass alone serves what comes in on it; sockets hear both.
        let asked_on = if subject == Subject::Xdp && threads == 1 { ["0", "1"] } else { ["0,1", "0,1"] };
        let running = stage.start(subject, &flags, false)?;
        let before = stage.lab.inside(Side::Server, || cpu::socket_drops(53))??;
        let load = ["--queries", &queries, "--queues", asked_on[0], "--cpus", asked_on[1]];
        let asked = stage.ask_with(&running, &[&load[..], &search[..]].concat())?;
        let rate = asked.figure("/peak/answered_per_s");
        peak.add(name, &column, rate);
        drops.add(
            name,
            &column,
            (stage.lab.inside(Side::Server, || cpu::socket_drops(53))??.saturating_sub(before)) as f64,
        );
        let at_peak =
            stage.ask_with(&running, &[&load[..], &["--rate", &format!("{rate:.0}"), "--for", "0.6"]].concat())?;
        switches.add(name, &column, 1000.0 * at_peak.switches as f64 / at_peak.answered());
        Ok(())
    })?;
    let mut says = Vec::new();
    let [shared, hash, receiving, bypass] = MODES.map(|(name, ..)| name);
    for (one, other, bound) in [
        (receiving, hash, Bound::AtLeast(1.0)),
        (hash, shared, Bound::AtLeast(1.0)),
        (receiving, shared, Bound::AtLeast(1.0)),
        (bypass, receiving, Bound::AtLeast(2.0)),
    ] {
        says.extend(peak.compare("2 threads", one, other).map(|ratio| ratio.says(Some(bound))));
    }
    let mut second = Vec::new();
    for (name, ..) in MODES {
        if let (Some(one), Some(two)) = (peak.median(name, "1 thread"), peak.median(name, "2 threads")) {
            says.push(format!("{name}: two threads do {:.2} of what one does", two / one));
            second.push(format!("{:.2} with {name}", two / one));
        }
    }
    let two = "2 threads";
    let words = format!(
        "With two threads the rate of sockets picked by a hash is {}; that of sockets picked by the receiving CPU is {} and {}. That of the bypass is {}. Two threads do of what one does: {}. The \
         old argument is about twelve cores, where a shared socket fell from 37 to 16 thousand a second: all wait for one lock, and for the cache line it is in. That \
         takes more threads than two. The bypass has both CPUs busy with one thread already: the generator is on the other.",
        peak.words(two, hash, shared),
        peak.words(two, receiving, shared),
        peak.words(two, receiving, hash),
        peak.words(two, bypass, receiving),
        second.join(", "),
    );
    Ok(Output {
        about: "Our own server in four arrangements, with one thread and with two, on a machine of two CPUs which the generator shares: it sends from both queues, \
                one thread on each CPU (on one queue, from the other CPU, where one worker of the bypass is asked). So two threads cannot do twice what one does: the CPUs are \
                already busy with asking."
            .to_owned(),
        sheets: vec![peak, switches, drops],
        rivals: [beside(bypass, &[shared, hash, receiving]), beside(receiving, &[shared, hash])].concat(),
        words,
        says,
    })
}
