//! `responder flood`: from flags to a generator, and from what it has done to a table.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    cli::{self, ClientSockets, Expect, Io, Switch},
    config::numbers,
    flood::{
        self, Flood, Io as Opened,
        asker::{FLOWS_MAX, Shared},
        pace::Load,
        packets::{Packets, Path},
        peak::{self, Trial},
        questions::{self, Question, Shares},
        report::{Report, Setting, whole},
        sockets,
        target::{self, Target},
        xdp,
    },
    xdp::nic,
};

/// How long a run is, and a trial of a search, unless it is said.
const RUN_S: f64 = 10.0;
const TRIAL_S: f64 = 1.0;
/// How long a reply may take, in a run and in a search, which waits so long after each trial that loses something.
const RUN_TIMEOUT_MS: u64 = 1000;
const TRIAL_TIMEOUT_MS: u64 = 100;
/// Queries a second: one at least within the longest run, and more than any link carries.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e9;

/// Floods the target and says what became of it. The exit status is 1 if nothing was answered.
pub fn run(flags: &cli::Flood) -> Result<ExitCode> {
    let questions = questions(flags)?;
    let load = load(flags)?;
    let seconds = flags.seconds.unwrap_or(if load.is_some() { RUN_S } else { TRIAL_S });
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
    let length = length.with_context(|| format!("--for {seconds}: expected a number of seconds above 0"))?;
    let address = target::resolve(&flags.target)?;
    let target = Target::find(address, flags.iface.as_deref())?;
    target.allow(flags.i_own_the_target)?;

    let timeout_ms = if load.is_some() { RUN_TIMEOUT_MS } else { TRIAL_TIMEOUT_MS };
    let (mut flood, setting) = open(flags, &target, questions, flags.timeout_ms.unwrap_or(timeout_ms))?;
    if let Some(Load::Window(window)) = load {
        ensure!(
            window <= flood.slots(),
            "--window {window}: {} flows can tell {} queries apart at a time: more --flows?",
            setting.flows,
            flood.slots()
        );
    }
    let progress = stderr().is_terminal() || !flags.json;
    if progress {
        eprintln!(
            "asking {} by {} ({} mode), {} threads, {} flows, {} different queries",
            setting.target, setting.interface, setting.mode, setting.threads, setting.flows, setting.queries
        );
    }
    let (report, outcome) = match load {
        Some(load) => {
            let (mut second, mut before) = (0, (0, 0));
            let mut tell = |sent: u64, answered: u64| {
                second += 1;
                if progress {
                    eprintln!("{second:>4} s {:>12} sent/s {:>12} answered/s", sent - before.0, answered - before.1);
                }
                before = (sent, answered);
            };
            let outcome = flood.run(load, length, &mut tell)?;
            (Report::new(setting, &outcome), Some(outcome))
        }
        None => {
            let found = peak::find(&mut flood, flags.max_loss, flags.peak_within, length, |trial| {
                if progress {
                    eprintln!("{}", shown(trial));
                }
            })?;
            let Some(best) = &found.best else {
                bail!("{}", nothing(flags, found.trials.iter().any(|trial| trial.heard)));
            };
            (Report::new(setting, best).with_peak(&found), found.best)
        }
    };
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.render());
    }
    let outcome = outcome.context("a search ends with its best trial")?;
    if !outcome.is_as_offered() {
        eprintln!(
            "warning: this generator made {}/s of the {}/s that were wanted: what is said above is about what was sent",
            whole(outcome.sent_per_s()),
            whole(report.wanted_per_s.unwrap_or_default())
        );
    }
    let again_after = flood.slots() as f64 / outcome.sent_per_s();
    if !flags.no_replies && again_after < flood.timeout().as_secs_f64() {
        eprintln!(
            "warning: at this rate the IDs of {} flows came again after {} ms: a reply that took longer may have been taken for that to a later query; ask with more --flows",
            report.setting.flows,
            whole(1000.0 * again_after)
        );
    }
    if !flags.no_replies && outcome.tally.all_answered() == 0 {
        bail!("{}", nothing(flags, outcome.tally.heard_any()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Why no query was answered, as far as it can be seen from here.
fn nothing(flags: &cli::Flood, something_came: bool) -> String {
    if something_came {
        format!(
            "of the queries to {} too few were answered in time, and by what fits them: a lower rate, or --expect?",
            flags.target
        )
    } else {
        format!(
            "{} answers nothing: does it serve this address and port, and do its replies come back by this interface?",
            flags.target
        )
    }
}

fn shown(trial: &Trial) -> String {
    format!(
        "{:>12}/s: {:>12} sent/s {:>12} answered/s {:>8.3} % lost{}",
        whole(trial.wanted_per_s),
        whole(trial.sent_per_s),
        whole(trial.answered_per_s),
        100.0 * trial.loss,
        match (trial.as_offered, trial.good) {
            (false, _) => "  the generator is too slow",
            (true, true) => "",
            (true, false) => "  too many",
        }
    )
}

fn questions(flags: &cli::Flood) -> Result<Vec<Question>> {
    for (flag, share) in [
        ("--random", flags.random),
        ("--malformed", flags.malformed),
        ("--spoofed", flags.spoofed),
        ("--do", flags.dnssec_ok),
        ("--max-loss", flags.max_loss),
        ("--peak-within", flags.peak_within),
    ] {
        ensure!((0.0..=1.0).contains(&share), "{flag} {share}: expected a share from 0 to 1");
    }
    ensure!(flags.peak_within > 0.0, "--peak-within 0: no search ends there");
    if let Some(length) = flags.payload {
        ensure!(flags.expect == Expect::Echo, "--payload is no DNS, so that only --expect echo can be kept");
        return Ok(questions::payload(length.into()));
    }
    let asked = match (&flags.queries, &flags.zone) {
        (Some(path), _) => questions::read(path)?,
        (None, Some(zone)) => questions::of_zone(zone)?,
        (None, None) => bail!("what is to be asked? Say --queries FILE, --zone NAME or --payload BYTES"),
    };
    let shares =
        Shares { random: flags.random, malformed: flags.malformed, spoofed: flags.spoofed, dnssec_ok: flags.dnssec_ok };
    ensure!(flags.spoofed == 0.0 || flags.io == Io::Xdp, "--spoofed: kernel sockets have sources of their own only");
    let edns = (flags.edns > 0).then_some(flags.edns);
    let questions = questions::mix(&asked, shares, edns, flags.spoof_prefix)?;
    Ok(if flags.expect == Expect::Echo { questions::to_echo(questions) } else { questions })
}

/// `None` for a search.
fn load(flags: &cli::Flood) -> Result<Option<Load>> {
    match (flags.rate, flags.window, flags.find_peak) {
        (Some(rate), _, _) => {
            let (least, most) = (RATES.start(), RATES.end());
            ensure!(RATES.contains(&rate), "--rate {rate}: expected queries a second, from {least} to {most}");
            Ok(Some(Load::Rate(rate)))
        }
        (_, Some(window), _) => {
            ensure!(!flags.no_replies, "--window waits for replies, which --no-replies does not see: say --rate");
            Ok(Some(Load::Window(window as usize)))
        }
        (_, _, true) => Ok(None),
        _ => bail!("how fast? Say --rate QPS, --window N or --find-peak"),
    }
}

/// Opens the sockets, and says how.
fn open(flags: &cli::Flood, target: &Target, questions: Vec<Question>, timeout_ms: u64) -> Result<(Flood, Setting)> {
    let interface = &target.interface;
    let cpus = flags.cpus.as_deref().map(numbers).transpose().context("--cpus")?;
    let queues = match flags.queues.as_str() {
        "all" => (0..nic::receive_queues(&interface.name)).collect(),
        list => numbers(list).context("--queues")?,
    };
    let threads = if flags.io == Io::Xdp { queues.len() } else { usize::from(flags.threads) };
    let cpus: Vec<Option<usize>> = match cpus {
        Some(cpus) => {
            ensure!(cpus.len() == threads, "--cpus names {} CPUs, but there are {threads} threads", cpus.len());
            cpus.into_iter().map(|cpu| Some(cpu as usize)).collect()
        }
        None => vec![None; threads],
    };
    let groups = if flags.io == Io::Socket && flags.sockets == ClientSockets::Shared { 1 } else { threads };
    let flows = usize::from(flags.flows).div_ceil(groups);
    ensure!(flows * groups <= FLOWS_MAX, "at most {FLOWS_MAX} flows have ports");
    let has_ids = questions.iter().all(|question| question.message.len() >= 2);
    let stop = stop_on_signals()?;
    let shared = Shared {
        target: target.address,
        echo: flags.expect == Expect::Echo,
        timeout_ns: timeout_ms * 1_000_000,
        verify: match flags.verify_checksums {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => interface.driver != "veth",
        },
        flights: flood::flights(groups, flows, has_ids),
        flows,
        progress: (0..threads).map(|_| flood::asker::Progress::default()).collect(),
        past: AtomicUsize::new(0),
        questions,
    };
    let deaf = flags.no_replies;
    let (io, name, mode) = match flags.io {
        Io::Xdp => {
            ensure!(!target.is_local, "{} is this machine, where AF_XDP has no way: say --io socket", target.address);
            let path = Path {
                from_mac: interface.mac,
                to_mac: target.mac()?,
                from: target.source,
                to: target.address,
                vlan: flags.vlan,
            };
            let packets = Packets::new(&path, &shared.questions)?;
            let settings = xdp::Settings { interface, queues: &queues, cpus, zero_copy: flags.zero_copy, deaf };
            let io = xdp::Io::open(settings, target.address, flows, packets)?;
            let (mode, fallback) = io.mode();
            if let Some(reason) = fallback {
                eprintln!("warning: {reason}");
            }
            (Opened::Xdp(Box::new(io)), "xdp", mode)
        }
        Io::Socket => {
            ensure!(
                flags.vlan.is_none(),
                "--vlan: kernel sockets send what their interface sends: name a VLAN device's address"
            );
            (Opened::Socket(sockets::Io::open(&shared, cpus, deaf)?), "socket", "kernel")
        }
    };
    let setting = Setting {
        target: target.address.to_string(),
        io: name,
        interface: interface.name.clone(),
        mode,
        threads,
        flows: flows * groups,
        queries: shared.questions.len(),
        no_replies: deaf,
    };
    Ok((Flood::new(io, shared, threads, deaf, stop), setting))
}

/// A flag that signals set, for as long as this process lives. The second one ends it at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop)).context("handling signals")?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handling signals")?;
    }
    Ok(stop)
}
