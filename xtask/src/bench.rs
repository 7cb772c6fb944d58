//! `cargo xtask bench NAME`: measures, and writes what it has measured as JSON, as Markdown and as plots to `target/bench`. `bench report` makes BENCHMARKS.md of all
//! that is there.
//!
//! Subjects take turns, round by round, so that a busy moment of the machine meets all. Nothing passes or fails by its speed: what is wanted is written beside what
//! was seen. One bench is one file; what they share is the lab and the servers ([`stage`]), CPU time ([`cpu`]), figures ([`sheet`]) and plots ([`plot`]).

pub mod cpu;
mod defence;
mod knot;
mod latency;
mod peers;
pub mod plot;
pub mod report;
mod respond;
mod scaling;
mod sharing;
pub mod sheet;
mod sizes;
pub mod stage;
mod steering;
pub mod zones;

use std::{
    collections::BTreeMap,
    fs,
    io::{IsTerminal as _, stderr},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Instant, SystemTime},
};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::{
    lab::{self, Lab},
    setup,
};
use sheet::{Results, Sheet};
use stage::Stage;

/// Rounds of the subjects in turn.
const ROUNDS: usize = 3;

/// Flags of `bench`.
#[derive(Debug, Args)]
pub struct Flags {
    /// What is measured; `all` is all of it, one after the other, and `report` writes BENCHMARKS.md of what was measured last.
    #[arg(value_enum, default_value_t = Name::All)]
    name: Name,
    /// Less than three minutes for all: one short round, to see that it works. Its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Print the JSON document instead of the tables. It is in target/bench anyway.
    #[arg(long)]
    json: bool,
}

/// The benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// All of them.
    All,
    /// Peak rates and CPU time of an answer, beside Knot, NSD and BIND.
    Peers,
    /// Threads on shared sockets, on sockets of their own, and on the bypass.
    Scaling,
    /// Workers on the CPU of their queue, and crossed.
    Steering,
    /// Latency at shares of each server's peak.
    Latency,
    /// Round trips of many sizes over UDP, AF_UNIX and the bypass.
    Sizes,
    /// Counters on cache lines of their own, on one, and shared.
    Sharing,
    /// Legitimate queries beside a flood.
    FloodDefence,
    /// Instructions of an answer, by kind, counted by callgrind.
    Respond,
    /// Instructions in small and large zones, and how soon large ones are ready.
    Zones,
    /// Write BENCHMARKS.md.
    Report,
}

impl Name {
    const MEASURED: [Self; 9] = [
        Self::Peers,
        Self::Scaling,
        Self::Steering,
        Self::Latency,
        Self::Sizes,
        Self::Sharing,
        Self::FloodDefence,
        Self::Respond,
        Self::Zones,
    ];

    fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether it needs a lab, and with it root.
    fn has_lab(self) -> bool {
        !matches!(self, Self::Sharing | Self::Respond | Self::Zones | Self::Report)
    }
}

/// What one bench gives.
struct Output {
    about: String,
    sheets: Vec<Sheet>,
    rivals: Vec<(&'static str, &'static str)>,
    words: String,
    says: Vec<String>,
}

/// The first beside each of the others.
fn beside(one: &'static str, others: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    others.iter().map(|other| (one, *other)).collect()
}

/// What a bench has to work with.
struct Bench<'a> {
    stage: Option<&'a Stage>,
    responder: &'a Path,
    /// The executable of `responder/benches/respond.rs`.
    respond: Option<&'a Path>,
    quick: bool,
    /// A signal has come.
    stop: Arc<AtomicBool>,
}

impl Bench<'_> {
    fn stage(&self) -> anyhow::Result<&Stage> {
        self.stage.context("this bench has a lab")
    }

    fn respond(&self) -> anyhow::Result<&Path> {
        self.respond.context("this bench has its executable")
    }

    /// As many seconds as that, in a quick run as these.
    fn seconds(&self, usual: f64, quick: f64) -> String {
        format!("{}", if self.quick { quick } else { usual })
    }

    /// Flags of a search for the peak with trials of this length.
    fn search(&self, usual: f64) -> [String; 5] {
        let [length, within] =
            if self.quick { ["0.1".to_owned(), "1".to_owned()] } else { [usual.to_string(), "0.05".to_owned()] };
        ["--find-peak".to_owned(), "--for".to_owned(), length, "--peak-within".to_owned(), within]
    }

    fn whole_seconds(&self, usual: u32, quick: u32) -> String {
        format!("{}", if self.quick { quick } else { usual })
    }

    /// Runs all subjects, in turn, so many times.
    fn rounds<T: Copy>(
        &self,
        subjects: &[T],
        what: &str,
        run: impl FnMut(T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.times(if self.quick { 1 } else { ROUNDS }, subjects, what, run)
    }

    /// Runs each subject once: for what is the same each time.
    fn once<T: Copy>(
        &self,
        subjects: &[T],
        what: &str,
        run: impl FnMut(T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.times(1, subjects, what, run)
    }

    /// A signal ends it after the run that it comes in.
    fn times<T: Copy>(
        &self,
        rounds: usize,
        subjects: &[T],
        what: &str,
        mut run: impl FnMut(T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let total = rounds * subjects.len();
        let bar = ProgressBar::new(total as u64);
        let style = ProgressStyle::with_template("{msg:36} [{bar:30}] {pos}/{len} {elapsed} of about {duration}");
        bar.set_style(style.context("the progress bar's template")?.progress_chars("=> "));
        bar.set_message(what.to_owned());
        if !stderr().is_terminal() {
            eprintln!("{what}: {total} runs");
        }
        for _ in 0..rounds {
            for subject in subjects {
                let done = run(*subject);
                // It ends what runs, too, so that what failed is not the news.
                ensure!(!self.stop.load(Relaxed), "stopped by a signal: of this bench nothing is kept");
                done.with_context(|| what.to_owned())?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Measures, prints, and writes.
pub fn run(flags: &Flags, built: bool) -> anyhow::Result<ExitCode> {
    if flags.name == Name::Report {
        return report::write().map(|()| ExitCode::SUCCESS);
    }
    let names = if flags.name == Name::All { &Name::MEASURED[..] } else { std::slice::from_ref(&flags.name) };
    if !built {
        setup::packages(&[setup::BUILD, setup::LAB, setup::BENCH, setup::CLIENTS])?;
        setup::servers(setup::CONFORMANCE)?;
        setup::build_responder()?;
    }
    let responder = setup::responder()?;
    let respond =
        names.iter().any(|name| matches!(name, Name::Sharing | Name::Respond | Name::Zones)).then(build).transpose()?;
    if names.iter().any(|name| name.has_lab()) {
        setup::as_root(&setup::arguments_when_built())?;
        Lab::remove_stale()?;
    }
    let stop = lab::stop_on_signals()?;
    let stage = names.iter().any(|name| name.has_lab()).then(|| Stage::new(&responder)).transpose()?;
    let (stage, respond) = (stage.as_ref(), respond.as_deref());
    let bench = Bench { stage, responder: &responder, respond, quick: flags.quick, stop };
    for name in names {
        let results = measure(*name, &bench)?;
        write(&results)?;
        if flags.json {
            println!("{}", serde_json::to_string_pretty(&results)?);
        } else {
            println!("{}", results.markdown());
        }
    }
    eprintln!("{} has tables, plots and figures", directory()?.display());
    Ok(ExitCode::SUCCESS)
}

fn measure(name: Name, bench: &Bench<'_>) -> anyhow::Result<Results> {
    let start = Instant::now();
    let output = match name {
        Name::Peers => peers::run(bench),
        Name::Scaling => scaling::run(bench),
        Name::Steering => steering::run(bench),
        Name::Latency => latency::run(bench),
        Name::Sizes => sizes::run(bench),
        Name::Sharing => sharing::run(bench),
        Name::FloodDefence => defence::run(bench),
        Name::Respond => respond::run(bench),
        Name::Zones => zones::run(bench),
        Name::All | Name::Report => unreachable!("these are not measured"),
    };
    let Output { about, sheets, rivals, words, mut says } = output.with_context(|| format!("bench {}", name.text()))?;
    if let Some(stage) = bench.stage {
        says.extend(stage.take_shortfalls());
    }
    Ok(Results {
        bench: name.text(),
        command: format!("cargo xtask bench {}{}", name.text(), if bench.quick { " --quick" } else { "" }),
        about,
        quick: bench.quick,
        at_s: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs(),
        took_s: start.elapsed().as_secs_f64(),
        machine: machine(),
        sheets,
        rivals: rivals.into_iter().map(|(ours, other)| (ours.to_owned(), other.to_owned())).collect(),
        words,
        says,
    })
}

/// Writes the document, the tables and the plots.
fn write(results: &Results) -> anyhow::Result<()> {
    let directory = directory()?;
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let path = |end: &str| directory.join(format!("{}.{end}", results.bench));
    setup::write_json(Some(&path("json")), results)?;
    fs::write(path("md"), results.markdown()).with_context(|| format!("writing {}", path("md").display()))?;
    for (index, sheet) in results.sheets.iter().enumerate() {
        plot::draw(sheet, &directory.join(sheet::plot_name(&results.bench, index)))?;
    }
    Ok(())
}

/// Where results are.
fn directory() -> anyhow::Result<PathBuf> {
    Ok(setup::target()?.join("bench"))
}

/// What figures depend on, as far as the system says.
fn machine() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu_info = read("/proc/cpuinfo");
    let model =
        cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, model)| model);
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let said = String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout })
            .into_owned();
        // BIND names the commit that it was built from, if that is known.
        Some(said.lines().next()?.trim().trim_end_matches(" <id:>").to_owned())
    };
    let memory =
        read("/proc/meminfo").lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        all.extend(value.filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value)));
    };
    put("CPU", model.map(str::to_owned));
    put("CPUs", std::thread::available_parallelism().ok().map(|count| count.to_string()));
    put("memory", memory.map(|kilobytes| format!("{} GB", kilobytes / 1_000_000)));
    put("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned()));
    put("virtual", cpu_info.contains(" hypervisor").then(|| "yes: the host has other guests".to_owned()));
    put("compiler", first_line("rustc", "--version"));
    put("Knot", first_line("knotd", "--version"));
    put("NSD", first_line("nsd", "-v"));
    put("BIND", first_line("named", "-v"));
    put("kxdpgun", first_line("kxdpgun", "--version"));
    put("changed", knot::is_refused().then(|| knot::SAYS.to_owned()));
    all
}

/// The kinds of answers that `responder/benches/respond.rs` knows.
const KINDS: [&str; 9] =
    ["exact", "exact-edns", "nxdomain", "nodata", "wildcard", "referral", "cname", "long-wildcard", "127-labels"];
/// The same loop without an answer in it.
const LOOP: &str = "loop";
/// Answers counted at a time. One more run of the loop alone shows what all the rest takes.
const ANSWERS: &str = "1000";

/// Instructions of one of so many answers, of a count with them and one without.
fn per_answer(all: u64, none: u64) -> anyhow::Result<f64> {
    ensure!(all >= none, "{ANSWERS} answers took fewer instructions than none");
    Ok((all - none) as f64 / ANSWERS.parse::<f64>()?)
}

/// Builds the bench: its executable, as Cargo's messages name it.
fn build() -> anyhow::Result<PathBuf> {
    let mut build = setup::cargo();
    build.args(["bench", "--package", "responder", "--bench", "respond", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = build.output().context("starting cargo")?;
    ensure!(output.status.success(), "`{}` failed: {}", setup::shown(&build), output.status);
    let messages = String::from_utf8(output.stdout).context("reading Cargo's messages")?;
    executable(&messages).context("Cargo does not name the executable of the bench `respond`")
}

fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_bench = message["target"]["name"] == "respond" && message["target"]["kind"][0] == "bench";
        message["executable"].as_str().filter(|_| is_bench).map(PathBuf::from)
    })
}

/// Instructions in the loop that asks, whatever is loaded before.
fn instructions(bench: &Path, arguments: &[&str]) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=respond::ask*"]);
    valgrind.arg(bench).args(arguments);
    let output = valgrind.output().context("starting valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed:\n{said}", setup::shown(&valgrind));
    collected(&said).with_context(|| format!("callgrind does not say how many instructions it counted:\n{said}"))
}

/// From the line `==1234== Collected : 123456`.
fn collected(said: &str) -> Option<u64> {
    let (_, rest) = said.lines().find_map(|line| line.split_once("Collected : "))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n==7== I   refs:      123,456\n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==7== nothing\n"), None);
    }

    /// What runs in a lab, and the lab, go when a bench returns; so it must.
    #[test]
    fn a_signal_ends_a_bench() {
        let stop = Arc::new(AtomicBool::new(false));
        let bench =
            Bench { stage: None, responder: Path::new(""), respond: None, quick: false, stop: Arc::clone(&stop) };
        let mut runs = 0;
        let ended = bench.rounds(&[(); 4], "runs", |()| {
            runs += 1;
            stop.store(runs == 2, Relaxed);
            ensure!(runs != 2, "the generator failed");
            Ok(())
        });
        assert!(ended.unwrap_err().to_string().starts_with("stopped by a signal"));
        assert_eq!(runs, 2);
    }

    #[test]
    fn the_executable_is_found() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"respond"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"respond"},"executable":"/t/respond-1"}"#,
            "\n",
        );
        assert_eq!(executable(messages), Some(PathBuf::from("/t/respond-1")));
    }
}
