//! `bench report`: BENCHMARKS.md, made of what benches have written, with nothing edited by hand. Plots go to `benchmarks/` beside it.

use std::{fs, process::Command};

use anyhow::{Context as _, ensure};

use super::{
    Name, directory, plot,
    sheet::{MISSED, Results, Shape, plot_name},
};
use crate::setup;

/// Where plots are, from the top of the workspace.
const PLOTS: &str = "benchmarks";

/// Writes it.
pub(super) fn write() -> anyhow::Result<()> {
    let (from, workspace) = (directory()?, setup::workspace());
    let mut all = Vec::new();
    for name in Name::MEASURED {
        let path = from.join(format!("{}.json", name.text()));
        let text = fs::read_to_string(&path)
            .with_context(|| format!("reading {}: `cargo xtask bench {}` writes it", path.display(), name.text()))?;
        let results: Results = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        ensure!(
            !results.quick,
            "{} is of a quick run, whose figures mean little: `cargo xtask bench {}` measures",
            path.display(),
            name.text()
        );
        all.push(results);
    }
    let plots = workspace.join(PLOTS);
    fs::create_dir_all(&plots).with_context(|| format!("making {}", plots.display()))?;
    // What an earlier report had more goes.
    for old in fs::read_dir(&plots)?
        .filter_map(Result::ok)
        .filter(|old| old.path().extension().is_some_and(|end| end == "svg"))
    {
        fs::remove_file(old.path()).with_context(|| format!("removing {}", old.path().display()))?;
    }
    for results in &all {
        for (index, sheet) in results.sheets.iter().enumerate().filter(|(_, sheet)| sheet.shape != Shape::Table) {
            plot::draw(sheet, &plots.join(plot_name(&results.bench, index)))?;
        }
    }
    let path = workspace.join("BENCHMARKS.md");
    fs::write(&path, text(&all)?).with_context(|| format!("writing {}", path.display()))?;
    println!("{} and {} are written", path.display(), plots.display());
    Ok(())
}

fn text(all: &[Results]) -> anyhow::Result<String> {
    let first = all.first().context("nothing was measured")?;
    for other in all {
        ensure!(
            other.machine == first.machine,
            "{} and {} were measured on another machine, or with other versions: `cargo xtask bench all` measures all anew",
            first.bench,
            other.bench
        );
    }
    let mut out = "# Benchmarks\n\nWritten by `cargo xtask bench report` from the runs of `cargo xtask bench all`; nothing here is edited by hand.\n\n".to_owned();
    out += "Client and server share the CPUs of one machine and are joined by a veth pair: the rates say little about hardware, the ratios between servers in \
            one run say more. Subjects take turns; a figure is the median of its runs, with the least and the most of them in brackets. Two figures whose runs overlap are called no \
            difference. Beside some figures is what the project wants of itself; where that is missed, it says so. How this is to be read for a real NIC, and what to run on two machines, \
            is in [docs/real-nic.md](docs/real-nic.md).\n\n| | |\n| --- | --- |\n";
    out += &format!("| measured | {} |\n", all.iter().map(|results| results.at_s).min().map_or_else(String::new, date));
    out += &format!("| took | {:.0} min |\n", all.iter().map(|results| results.took_s).sum::<f64>() / 60.0);
    for (name, value) in &first.machine {
        out += &format!("| {name} | {value} |\n");
    }
    out += "\n## Where we lose\n\n";
    let missed = |results: &Results| {
        let says: Vec<String> = results.says.iter().filter(|says| says.contains(MISSED)).cloned().collect();
        says
    };
    for (intro, none, lines) in [
        ("Less than the project wants of itself:", "Nothing that was wanted was missed.", lines(all, missed)),
        (
            "Worse than what it is held against, in every run, of medians the first to the second:",
            "Nothing was worse than what it is held against.",
            lines(all, Results::losses),
        ),
    ] {
        out += &if lines.is_empty() { format!("{none}\n\n") } else { format!("{intro}\n\n{lines}\n") };
    }
    for results in all {
        out += &results.markdown().replace("](", &format!("]({PLOTS}/"));
    }
    Ok(out.trim_end().to_owned() + "\n")
}

/// What each bench has to say of something.
fn lines(all: &[Results], of: impl Fn(&Results) -> Vec<String>) -> String {
    let each =
        all.iter().flat_map(|results| of(results).into_iter().map(|line| format!("- {}: {line}\n", results.bench)));
    each.collect()
}

/// A day as `date -u` writes it.
fn date(at_s: u64) -> String {
    let mut date = Command::new("date");
    date.args(["-u", "+%Y-%m-%d", "-d", &format!("@{at_s}")]);
    setup::output(&mut date).map(|day| day.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::Sheet;

    #[test]
    fn what_was_missed_is_said_first() {
        let mut sheet = Sheet::new("Peak rate", "answers/s", Shape::Bars);
        for (row, runs) in [("ours", [5.0, 6.0]), ("theirs", [7.0, 8.0]), ("another", [5.5, 5.5])] {
            runs.into_iter().for_each(|run| sheet.add(row, "peak", run));
        }
        let results = Results {
            bench: "peers".to_owned(),
            command: "cargo xtask bench peers".to_owned(),
            about: "About it.".to_owned(),
            quick: false,
            at_s: 86_400,
            took_s: 90.0,
            machine: [("CPU".to_owned(), "one".to_owned())].into(),
            sheets: vec![sheet],
            rivals: ["theirs", "another"].map(|other| ("ours".to_owned(), other.to_owned())).to_vec(),
            words: "It is so.".to_owned(),
            says: vec!["a to b: 1.00 (wanted at least 2: **missed**)".to_owned(), "c to d: 3.00".to_owned()],
        };
        let text = text(&[results]).unwrap();
        let lost = text.find("- peers: a to b").unwrap();
        assert!(lost < text.find("## peers").unwrap());
        assert!(!text.contains("- peers: c to d") && text.contains("- c to d: 3.00"));
        assert!(!text.contains("ours to another"), "their runs overlap");
        for part in [
            "| measured | 1970-01-02 |",
            "![Peak rate](benchmarks/peers-0.svg)",
            "    cargo xtask bench peers\n",
            "| CPU | one |",
            "- peers: ours to theirs, Peak rate (answers/s): peak: 5 to 7, 0.71\n",
            "\n\nIt is so.\n\n- a to b",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
