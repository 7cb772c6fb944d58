//! `bench steering`: the worker of a queue on the CPU that takes the queue's packets in, against deliberately crossed.

use std::fs;

use anyhow::Context as _;

use super::{
    Bench, Output,
    sheet::{Shape, Sheet},
    stage::{Running, Stage, Subject},
};
use crate::lab::Side;

const MODES: [(&str, Subject, bool); 4] = [
    ("bypass, straight", Subject::Xdp, false),
    ("bypass, crossed", Subject::Xdp, true),
    ("sockets, straight", Subject::Socket, false),
    ("sockets, crossed", Subject::Socket, true),
];
const FLOWS: [u32; 3] = [1, 2, 64];

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    let mut peak = Sheet::new("Peak rate", "answers/s", Shape::Bars);
    let mut cost = Sheet::new("CPU time of the server at the peak", "ns an answer", Shape::Bars);
    let search = bench.search(0.3);
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let queries = stage.queries().to_string_lossy();
    let flows = if bench.quick { &FLOWS[1..2] } else { &FLOWS[..] };
    let subjects: Vec<(u32, usize)> =
        flows.iter().copied().flat_map(|flows| (0..MODES.len()).map(move |mode| (flows, mode))).collect();
    bench.rounds(&subjects, "straight and crossed", |(flows, mode)| {
        let (name, subject, crossed) = MODES[mode];
        let column = if flows == 1 { "1 flow".to_owned() } else { format!("{flows} flows") };
        let cpus = if crossed && subject == Subject::Xdp { "1,0" } else { "0,1" };
        let running = stage.start(subject, &["--cpus", cpus], false)?;
        if subject == Subject::Socket {
            xps(stage, !crossed)?;
            pin(&running, crossed)?;
        }
        // A flow has one queue, and its thread the CPU of the same number.
        let (queues, asked_by) = if flows == 1 { ("0", "0") } else { ("0,1", "0,1") };
        let flows = flows.to_string();
        let load = ["--queries", &queries, "--queues", queues, "--cpus", asked_by, "--flows", &flows];
        let asked = stage.ask_with(&running, &[&load[..], &search[..]].concat())?;
        let rate = asked.figure("/peak/answered_per_s");
        peak.add(name, &column, rate);
        let at_peak =
            stage.ask_with(&running, &[&load[..], &["--rate", &format!("{rate:.0}"), "--for", "0.6"]].concat())?;
        cost.add(name, &column, at_peak.server_ns());
        if subject == Subject::Socket {
            xps(stage, false)?;
        }
        Ok(())
    })?;
    let mut says = Vec::new();
    let [bypass, bypass_crossed, sockets, sockets_crossed] = MODES.map(|(name, ..)| name);
    let all = |sheet: &Sheet, one, other| -> String {
        let of = |column: &str| format!("{} with {column}", sheet.words(column, one, other));
        sheet.columns().into_iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let words = format!(
        "The peak of straight on the bypass is {}; on sockets it is {}. The CPU time of an answer, straight on the bypass, is {}. With one flow straight means that asking, taking in and answering \
         are all on one CPU while the other has nothing to do: that is no fault of the placing, but of a generator on the server's machine. With flows on both queues both CPUs are busy either way, and \
         what is left is what the diagonal is for: packets that are still in the cache of the CPU that answers them, and no wake-ups across.",
        all(&peak, bypass, bypass_crossed),
        all(&peak, sockets, sockets_crossed),
        all(&cost, bypass, bypass_crossed),
    );
    for column in peak.columns() {
        for path in ["bypass", "sockets"] {
            let (straight, crossed) = (format!("{path}, straight"), format!("{path}, crossed"));
            for sheet in [&peak, &cost] {
                says.extend(sheet.compare(column, &straight, &crossed).map(|ratio| ratio.says(None)));
            }
        }
    }
    Ok(Output {
        about: "Straight: the worker of queue i, or the thread of CPU i's socket, is on CPU i, which is where the generator's thread i sends and so where its packets are taken in; replies leave by \
                transmit queue i. Crossed: the worker is on the other CPU; on sockets the transmit queue is that of the socket's hash besides (no XPS). The generator has one thread for \
                each queue, on the CPU of the same number, so that straight also means to share that CPU with it: on two CPUs somebody must."
            .to_owned(),
        sheets: vec![peak, cost],
        rivals: vec![(bypass, bypass_crossed), (sockets, sockets_crossed)],
        words,
        says,
    })
}

/// Has each CPU of the server's end send by the queue of its number, or by that of the flow's hash.
fn xps(stage: &Stage, on: bool) -> anyhow::Result<()> {
    let interface = stage.lab.server.interface;
    stage.lab.inside(Side::Server, || {
        for queue in 0..2 {
            let path = format!("queues/tx-{queue}/xps_cpus");
            // /sys shows the namespace that it was mounted in.
            let mut write = std::process::Command::new("ip");
            let mask = if on { 1 << queue } else { 0 };
            write.args(["netns", "exec", &stage.lab.server.namespace, "sh", "-c"]);
            write.arg(format!("echo {mask} >/sys/class/net/{interface}/{path}"));
            crate::setup::output(&mut write)?;
        }
        Ok(())
    })?
}

/// Has each thread of a kernel socket run on its CPU alone, or on the other one.
fn pin(running: &Running<'_>, crossed: bool) -> anyhow::Result<()> {
    let pid = running.pid().context("a server on sockets is a process")?;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("reading the server's threads")? {
        let thread = thread?;
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let Some(cpu) = name.trim().strip_prefix("udp cpu ").and_then(|cpu| cpu.parse::<usize>().ok()) else {
            continue;
        };
        let id = thread.file_name().to_string_lossy().parse().context("the number of a thread")?;
        let mut set = nix::sched::CpuSet::new();
        set.set(if crossed { 1 - cpu.min(1) } else { cpu })?;
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(id), &set).context("moving a thread")?;
    }
    Ok(())
}
