//! `bench sizes`: request and response of many sizes, over the kernel's UDP, over AF_UNIX datagrams and over the bypass.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::net::UnixDatagram,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    Bench, Output, beside,
    sheet::{Shape, Sheet, number},
    stage::{Asked, DNS_SIZES, Subject, nanoseconds},
};
use crate::lab::Side;

const SIZES: [usize; 6] = [1, 64, 256, 512, 1024, 1400];
const WINDOWS: [usize; 2] = [1, 32];
const UNIX: &str = "AF_UNIX datagrams";

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    let line = || Shape::Lines { x: "bytes of payload".to_owned(), log: true };
    let titles = WINDOWS.map(|window| format!("Round trips, {window} at a time"));
    let mut trips = titles.map(|title| Sheet::new(&title, "round trips/s", line()));
    let titles = WINDOWS.map(|window| format!("CPU time of both sides, {window} at a time"));
    let mut costs = titles.map(|title| Sheet::new(&title, "ns a round trip", Shape::Table));
    let seconds = bench.seconds(0.8, 0.2);
    let length = Duration::from_secs_f64(seconds.parse()?);
    let sizes = if bench.quick { &SIZES[1..2] } else { &SIZES[..] };
    let subjects: Vec<(usize, usize)> = sizes.iter().flat_map(|size| [(*size, 0), (*size, 1)]).collect();
    let both = |asked: &Asked| nanoseconds(asked.server + asked.client + asked.deferred) / asked.answered();
    bench.rounds(&[Subject::Echo, Subject::EchoSocket], "payloads", |subject| {
        let running = stage.start(subject, &[], false)?;
        for (size, at) in &subjects {
            let (payload, window) = (size.to_string(), WINDOWS[*at].to_string());
            let load = ["--payload", &payload, "--window", &window, "--for", &seconds];
            let path: &[&str] = if subject == Subject::Echo { &["--queues", "0"] } else { &["--io", "socket"] };
            let asked = stage.ask_with(&running, &[&load[..], path].concat())?;
            trips[*at].add(subject.name(), &format!("{size} B"), asked.figure("/answered_per_s"));
            costs[*at].add(subject.name(), &format!("{size} B"), both(&asked));
        }
        Ok(())
    })?;
    bench.rounds(&subjects, UNIX, |(size, at)| {
        // A namespace of its own has its own limit of datagrams in a queue, 10 at first.
        let (per_s, cost_ns) = stage.lab.inside(Side::Client, || {
            fs::write("/proc/sys/net/unix/max_dgram_qlen", "64").context("allowing longer queues")?;
            unix(size, WINDOWS[at], length)
        })??;
        trips[at].add(UNIX, &format!("{size} B"), per_s);
        costs[at].add(UNIX, &format!("{size} B"), cost_ns);
        Ok(())
    })?;

    let mut answers = Sheet::new("DNS answers, 32 at a time", "answers/s", line());
    let mut dns_cost = Sheet::new("CPU time of both sides, DNS answers", "ns an answer", Shape::Table);
    bench.rounds(&[Subject::Xdp, Subject::KnotXdp, Subject::Socket], "DNS answers", |subject| {
        let running = stage.start(subject, &[], false)?;
        for size in if bench.quick { &DNS_SIZES[1..2] } else { &DNS_SIZES[..] } {
            let file = stage.lab.directory.join("one-query.txt");
            std::fs::write(&file, format!("t{size}.example.com TXT\n")).context("writing a query")?;
            let file = file.to_string_lossy();
            let load = ["--queries", &file, "--queues", "0", "--window", "32", "--for", &seconds];
            let asked = stage.ask_with(&running, &load)?;
            answers.add(subject.name(), &format!("{size} B"), asked.figure("/answered_per_s"));
            dns_cost.add(subject.name(), &format!("{size} B"), both(&asked));
        }
        Ok(())
    })?;

    let mut says = Vec::new();
    for sheet in &trips {
        for column in sheet.columns() {
            for other in [Subject::EchoSocket.name(), UNIX] {
                says.extend(sheet.compare(column, Subject::Echo.name(), other).map(|ratio| ratio.says(None)));
            }
        }
    }
    let [one, many] = trips;
    let [echo, sockets] = [Subject::Echo, Subject::EchoSocket].map(Subject::name);
    let [xdp, knot, dns_sockets] = [Subject::Xdp, Subject::KnotXdp, Subject::Socket].map(Subject::name);
    let words = format!(
        "With 32 on their way the rate of the bypass is {} and {}, over all sizes; with one at a time it is {} and {}. An old table of a bypass of the stack within one machine has 1.7 to 6 times for request and response, and less than 1 for \
         small streams. A bypass saves what a packet costs on its way, while a lone packet waits for a wake-up, whatever carries it. From 1 B to 1400 B the bypass's rate goes to {} of what it was. For DNS answers of all sizes the bypass is {} and {}.",
        many.words_of_all(echo, sockets),
        many.words_of_all(echo, UNIX),
        one.words_of_all(echo, sockets),
        one.words_of_all(echo, UNIX),
        match (many.median(echo, "1 B"), many.median(echo, "1400 B")) {
            (Some(least), Some(most)) => number(most / least),
            _ => "-".to_owned(),
        },
        answers.words_of_all(xdp, knot),
        answers.words_of_all(xdp, dns_sockets),
    );
    let [one_cost, many_cost] = costs;
    Ok(Output {
        about: "A closed loop: so many payloads are on their way, and each that comes back makes the next one leave. Kernel UDP and the bypass go through the veth pair, with their echo in the \
                other namespace; AF_UNIX datagrams go between two threads and have no network at all. Neither side is pinned. With one at a time it is wake-ups that are measured, not sizes."
            .to_owned(),
        sheets: vec![one, many, one_cost, many_cost, answers, dns_cost],
        rivals: [beside(echo, &[sockets, UNIX]), beside(xdp, &[knot, dns_sockets])].concat(),
        words,
        says,
    })
}

/// Round trips a second between two threads, and the CPU time of one.
fn unix(size: usize, window: usize, length: Duration) -> anyhow::Result<(f64, f64)> {
    let (near, far) = UnixDatagram::pair().context("making a pair of sockets")?;
    let before = own_time();
    let begin = Instant::now();
    let trips = thread::scope(|scope| -> anyhow::Result<u64> {
        let echo = scope.spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; 65_536];
            loop {
                let length = far.recv(&mut buffer)?;
                if length == 0 {
                    return Ok(());
                }
                far.send(&buffer[..length])?;
            }
        });
        let (payload, mut buffer, mut trips) = (vec![7; size], vec![0; 65_536], 0);
        for _ in 0..window {
            near.send(&payload)?;
        }
        while begin.elapsed() < length {
            for _ in 0..64 {
                near.recv(&mut buffer)?;
                near.send(&payload)?;
                trips += 1;
            }
        }
        near.send(&[])?;
        // What was on its way is in the socket and goes with it.
        drop(near);
        echo.join().expect("a panic has been reported").or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::NotConnected => Ok(()),
            _ => Err(error),
        })?;
        Ok(trips)
    })?;
    let trips = trips as f64;
    Ok((trips / begin.elapsed().as_secs_f64(), nanoseconds(own_time().saturating_sub(before)) / trips))
}

/// CPU time of this process, threads that have ended included.
fn own_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_go_to_and_fro() {
        let (per_s, cost_ns) = unix(64, 8, Duration::from_millis(20)).unwrap();
        assert!(per_s > 100.0 && cost_ns > 0.0, "{per_s} {cost_ns}");
    }
}
