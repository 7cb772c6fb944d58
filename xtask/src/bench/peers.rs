//! `bench peers`: how many answers a second each server gives, what one costs, and whether clients that we did not write see the same.

use std::{collections::BTreeMap, process::Command, time::Duration};

use anyhow::Context as _;

use super::{
    Bench, Output, beside, cpu,
    sheet::{Bound, Shape, Sheet, number},
    stage::{Asked, Running, Stage, Subject, nanoseconds},
};
use crate::{lab::Side, setup};

const XDP: [Subject; 2] = [Subject::Xdp, Subject::KnotXdp];
const SOCKETS: [Subject; 4] = [Subject::Socket, Subject::KnotSocket, Subject::Nsd, Subject::Bind];
const LIMITS: [Subject; 2] = [Subject::Echo, Subject::Reflector];

/// A peak differs more from run to run than anything else here.
const PEAK_ROUNDS: usize = 5;
/// At which all can be asked, and at which only those by XDP can.
const LOW: u32 = 60_000;
const HIGH: u32 = 600_000;
/// Of the peak of Knot's XDP mode, and no more than that: a rate that none of those by XDP is late at.
const CALM: f64 = 0.75;
const CALM_MAX: f64 = 450_000.0;

/// Of servers that are asked to see what DNS takes: so many, in each round and at each rate, beside their echo.
const PAIRS: usize = 5;
/// What DNS alone may take, in nanoseconds.
const DNS_ALONE: Bound = Bound::AtMost(120.0);

/// With the rounds these are the half minute that ticks need.
const SPLIT_S: f64 = 10.0;

const USER: &str = "server, user";
const PEAK: &str = "peak";
const MOST: &str = "most answered";

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    let mut peak = Sheet::new("Peak rate", "answers/s", Shape::Bars);
    let all: Vec<Subject> = XDP.into_iter().chain(SOCKETS).chain(LIMITS).collect();
    let search = bench.search(0.3);
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let mut limited = BTreeMap::<&str, usize>::new();
    bench.times(if bench.quick { 1 } else { PEAK_ROUNDS }, &all, "peak", |subject| {
        let running = stage.start(subject, &[], false)?;
        let asked = stage.ask(&running, &search)?;
        peak.add(subject.name(), PEAK, asked.figure("/peak/answered_per_s"));
        peak.add(subject.name(), MOST, asked.figure("/peak/most_answered_per_s"));
        if asked.report["peak"]["limited_by_generator"] == true {
            *limited.entry(subject.name()).or_insert(0) += 1;
        }
        Ok(())
    })?;

    let knot = peak.median(Subject::KnotXdp.name(), PEAK).context("Knot has a peak")?;
    let calm = (CALM * knot).min(CALM_MAX).round();
    let mut cost = Sheet::new("CPU time of the server", "ns an answer", Shape::Bars);
    let mut whole = Sheet::new("CPU time of the whole machine", "ns an answer", Shape::Bars);
    let [seconds, long] = [bench.seconds(3.0, 0.5), bench.seconds(SPLIT_S, 0.5)];
    let by_xdp = [Subject::Xdp, Subject::KnotXdp, Subject::Echo];
    let (low, high) = (f64::from(LOW), f64::from(HIGH));
    let rates = [(calm, &by_xdp[..]), (low, &all[..7]), (high, &by_xdp[..])];
    let mut splits = Vec::new();
    for (rate, subjects) in if bench.quick { &rates[..1] } else { &rates[..] } {
        let column = per_s(*rate);
        let mut split = Split::default();
        bench.rounds(subjects, &format!("cost at {column}"), |subject| {
            let running = stage.start(subject, &[], false)?;
            let seconds = if *rate == high { &seconds } else { &long };
            let asked = stage.ask(&running, &["--rate", &format!("{rate}"), "--for", seconds])?;
            cost.add(subject.name(), &column, asked.server_ns());
            let machine = asked.server + asked.client + asked.deferred;
            whole.add(subject.name(), &column, nanoseconds(machine) / asked.answered());
            split.add(subject, &asked);
            Ok(())
        })?;
        if *rate != high {
            splits.push(split.sheet(&column));
        }
    }
    let calm_and_high = [calm, high];
    let alone = dns_alone(bench, stage, &calm_and_high[..if bench.quick { 1 } else { 2 }])?;
    let (by_gun, gun_cost) = guns(bench, &all, calm)?;

    let [calm, high] = [calm, high].map(per_s);
    let [xdp, knot, echo] = by_xdp.map(Subject::name);
    let best = SOCKETS
        .into_iter()
        .map(Subject::name)
        .max_by(|one, other| peak.median(one, PEAK).unwrap_or(0.0).total_cmp(&peak.median(other, PEAK).unwrap_or(0.0)));
    let mut says = Vec::new();
    let mut say = |sheet: &Sheet, column: &str, one: &str, other: &str, bound: Bound| {
        says.extend(sheet.compare(column, one, other).map(|ratio| ratio.says(Some(bound))));
    };
    say(&peak, PEAK, xdp, knot, Bound::AtLeast(1.2));
    say(&peak, PEAK, xdp, best.context("there are socket servers")?, Bound::AtLeast(2.0));
    say(&peak, PEAK, xdp, Subject::Reflector.name(), Bound::AtLeast(0.6));
    say(&peak, PEAK, Subject::Socket.name(), Subject::KnotSocket.name(), Bound::AtLeast(1.0));
    for column in [&calm, &high] {
        say(&cost, column, xdp, knot, Bound::AtMost(0.8));
        say(&cost, column, xdp, echo, Bound::AtMost(1.15));
        say(&gun_cost, column, xdp, knot, Bound::AtMost(0.8));
    }
    for column in by_gun.columns() {
        say(&by_gun, column, xdp, knot, Bound::AtLeast(1.0));
    }
    for (name, searches) in limited {
        let all = peak.get(name, PEAK).map_or(0, |cell| cell.runs.len());
        says.push(format!(
            "{name}: in {searches} of {all} searches the generator could send no more at some rate, so that the server may do more than is said here"
        ));
    }
    let mut dns = Vec::new();
    for cell in alone.rows.iter().flat_map(|row| &row.cells) {
        let [least, median, most] = [1, 2, 3].map(|quarters| number(cell.quarter(quarters)));
        let verdict = DNS_ALONE.verdict(cell.median());
        says.push(format!("{}, {}: {median} ns{verdict}", alone.title, cell.column));
        let runs = cell.runs.len();
        dns.push(format!("{median} ns at {} (the middle half of {runs} pairs: {least} to {most})", cell.column));
    }
    let user = |name: &str| match (splits[0].median(name, USER), cost.median(name, &calm)) {
        (Some(user), Some(all)) => number(100.0 * user / all),
        _ => "-".to_owned(),
    };
    let words = format!(
        "The peak of our server by XDP is {}, {}, which is the best on sockets, and {}. At {calm} the CPU time of an answer is {} and {}; at {high}, {} and {}; with kxdpgun asking, {} and, at \
         {high}, {}. DNS alone takes {}. Of an answer's time {} % is in user mode, of Knot's {} %: the rest is the kernel's, for whom veth is a copy and a buffer for each packet. That is \
         where a server by XDP still has something to win, and where a NIC with zero-copy has nothing to do.",
        peak.words(PEAK, xdp, knot),
        peak.words(PEAK, xdp, best.context("there are socket servers")?),
        peak.words(PEAK, xdp, Subject::Reflector.name()),
        cost.words(&calm, xdp, knot),
        cost.words(&calm, xdp, echo),
        cost.words(&high, xdp, knot),
        cost.words(&high, xdp, echo),
        gun_cost.words(&calm, xdp, knot),
        gun_cost.words(&high, xdp, knot),
        dns.join(" and "),
        user(xdp),
        user(knot),
    );
    let socket = Subject::Socket.name();
    let others = [knot, socket, Subject::KnotSocket.name(), Subject::Nsd.name(), Subject::Bind.name()];
    Ok(Output {
        about: "Each server in turn answers 1,003 questions of a small zone on one queue of a veth pair. The peak is the highest rate at which no more than 1 % of the \
             queries is lost, each rate tried three times before it is called too high, and the last of these three times more at the end. The calm rate is three quarters of the peak of Knot in XDP mode, and 600,000/s is above what some can: what they \
             answer then is what counts. The cost is the CPU time of all of the server's threads, to the \
             nanosecond (schedstat), at a fixed rate; on veth the receiving of the server's end is the client's work and not in it, but it is in the whole \
             machine's. Echo is our path without DNS; the reflector sends each query back from within the driver and has no process. Where CPU time goes is told by ticks, from half a minute of each server; soft interrupts come upon whoever runs, and are in the other columns. What DNS alone takes is less than the cost of a packet \
             changes from one second to the next, so it is measured in pairs: our server and its echo, one right after the other."
            .to_owned(),
        sheets: [peak, cost, alone, whole].into_iter().chain(splits).chain([by_gun, gun_cost]).collect(),
        rivals: [beside(xdp, &others), beside(socket, &others[2..])].concat(),
        words,
        says,
    })
}

/// Where CPU time goes, of all runs of each subject together: user and kernel mode are told apart by ticks, which few seconds have too few of.
#[derive(Default)]
struct Split {
    subjects: Vec<(Subject, Sums)>,
}

/// Seconds, and the answers that they were spent on.
#[derive(Clone, Copy, Default)]
struct Sums {
    answered: f64,
    server: f64,
    server_modes: (f64, f64),
    client_modes: (f64, f64),
    softirq: f64,
}

impl Split {
    fn add(&mut self, subject: Subject, asked: &Asked) {
        let index = self.subjects.iter().position(|(known, _)| *known == subject).unwrap_or_else(|| {
            self.subjects.push((subject, Sums::default()));
            self.subjects.len() - 1
        });
        let sums = &mut self.subjects[index].1;
        let add = |to: &mut (f64, f64), more: (f64, f64)| *to = (to.0 + more.0, to.1 + more.1);
        sums.answered += asked.answered();
        sums.server += asked.server.as_secs_f64();
        add(&mut sums.server_modes, asked.split);
        add(&mut sums.client_modes, asked.client_split);
        sums.softirq += asked.softirq;
    }

    fn sheet(&self, rate: &str) -> Sheet {
        let mut sheet = Sheet::new(&format!("Where CPU time goes, at {rate}"), "ns an answer", Shape::Table);
        for (subject, sums) in &self.subjects {
            // The sum is known to the nanosecond.
            let in_user = sums.server_modes.0 / (sums.server_modes.0 + sums.server_modes.1);
            for (column, seconds) in [
                (USER, sums.server * in_user),
                ("server, kernel", sums.server * (1.0 - in_user)),
                ("client, user", sums.client_modes.0),
                ("client, kernel", sums.client_modes.1),
                ("of it in soft interrupts", sums.softirq),
            ] {
                sheet.add(subject.name(), column, 1e9 * seconds / sums.answered);
            }
        }
        sheet
    }
}

/// What an answer costs more than an echo, by pairs of runs that follow each other, whose order changes from pair to pair.
fn dns_alone(bench: &Bench<'_>, stage: &Stage, rates: &[f64]) -> anyhow::Result<Sheet> {
    let mut alone = Sheet::new("DNS alone, which is our server less its echo", "ns an answer", Shape::Table);
    let seconds = bench.seconds(1.0, 0.3);
    let pairs = if bench.quick { 1 } else { PAIRS };
    let subjects: Vec<(f64, usize)> = (0..pairs).flat_map(|pair| rates.iter().map(move |rate| (*rate, pair))).collect();
    bench.rounds(&subjects, "DNS alone", |(rate, pair)| {
        let cost = |subject| -> anyhow::Result<f64> {
            let running = stage.start(subject, &[], false)?;
            Ok(stage.ask(&running, &["--rate", &rate.to_string(), "--for", &seconds])?.server_ns())
        };
        let difference = if pair % 2 == 0 {
            cost(Subject::Xdp)? - cost(Subject::Echo)?
        } else {
            let echo = cost(Subject::Echo)?;
            cost(Subject::Xdp)? - echo
        };
        alone.add("the difference of a pair", &per_s(rate), difference);
        Ok(())
    })?;
    Ok(alone)
}

/// What kxdpgun and dnsperf see: answers a second, and the server's CPU time for one.
fn guns(bench: &Bench<'_>, subjects: &[Subject], calm: f64) -> anyhow::Result<(Sheet, Sheet)> {
    let stage = bench.stage()?;
    let mut peak = Sheet::new("By other clients", "answers/s", Shape::Bars);
    let mut cost = Sheet::new("CPU time of the server, asked by kxdpgun", "ns an answer", Shape::Bars);
    let seconds = bench.whole_seconds(2, 1);
    let high = f64::from(HIGH);
    let rates: &[f64] = if bench.quick { &[calm] } else { &[calm, high, 1.5 * high] };
    let subjects = if bench.quick { &subjects[..2] } else { &subjects[..6] };
    bench.rounds(subjects, "kxdpgun and dnsperf", |subject| {
        let running = stage.start(subject, &[], false)?;
        let by_xdp = XDP.contains(&subject);
        let mut best = 0.0_f64;
        for rate in rates.iter().filter(|rate| by_xdp || **rate <= CALM_MAX) {
            let before = time(&running);
            let mut gun = stage.knot(Side::Client, "kxdpgun");
            gun.args(["-t", &seconds, "-Q", &format!("{rate:.0}"), "-b", "32", "-F", "1", "-i"]).arg(stage.queries());
            gun.args(["-I", stage.lab.client.interface, "-p", "53", &stage.lab.server.v4.to_string()]);
            let said = said(&mut gun)?;
            let replies = replies(&said).with_context(|| format!("kxdpgun says nothing of replies:\n{said}"))?;
            best = best.max(replies.per_s);
            if *rate <= high && by_xdp {
                let taken = nanoseconds(time(&running).saturating_sub(before));
                cost.add(subject.name(), &per_s(*rate), taken / replies.count);
            }
            // It leaves its program behind.
            let mut off = stage.lab.command(Side::Client, "ip");
            let _ = off.args(["link", "set", "dev", stage.lab.client.interface, "xdp", "off"]).status();
        }
        peak.add(subject.name(), "kxdpgun", best);
        let mut perf = stage.lab.command(Side::Client, "dnsperf");
        perf.args(["-s", &stage.lab.server.v4.to_string(), "-l", &seconds, "-c", "16", "-q", "500", "-d"])
            .arg(stage.queries());
        let said = said(&mut perf)?;
        let rate = said.lines().find_map(|line| line.trim().strip_prefix("Queries per second:")?.trim().parse().ok());
        peak.add(subject.name(), "dnsperf", rate.with_context(|| format!("dnsperf says no rate:\n{said}"))?);
        Ok(())
    })?;
    Ok((peak, cost))
}

/// The name of the column of a rate.
fn per_s(rate: f64) -> String {
    format!("{}/s", number(rate))
}

fn time(running: &Running<'_>) -> Duration {
    running.pid().map_or(Duration::ZERO, cpu::time)
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting `{}`", setup::shown(command)))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

struct Replies {
    count: f64,
    per_s: f64,
}

/// From the line `total replies:     1199999 (599999 pps) (99 %)`.
fn replies(said: &str) -> Option<Replies> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("total replies:"))?;
    let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<f64>().ok());
    Some(Replies { count: numbers.next()?, per_s: numbers.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kxdpgun_says_is_read() {
        let said = "thread#00: sent 12\ntotal queries:     1200000 (600000 pps)\ntotal replies:     1199999 (599999 pps) (99 %)\n";
        let replies = replies(said).unwrap();
        assert_eq!((replies.count, replies.per_s), (1_199_999.0, 599_999.0));
        assert!(super::replies("nothing").is_none());
    }
}
