//! Figures of a bench: what each run gave, and from that medians, spreads, tables and what can be said of two of them.
//!
//! Every figure keeps its runs. Two differ if their spreads do not meet; else nothing is said of which is more.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};

/// What one bench has measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Its name on the command line.
    pub bench: String,
    /// The command that made it.
    pub command: String,
    /// What was measured, and how.
    pub about: String,
    /// A short run to see that it works, whose figures mean little.
    pub quick: bool,
    /// When: seconds since 1970.
    pub at_s: u64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// The machine and what ran on it: name and value.
    pub machine: BTreeMap<String, String>,
    /// The figures.
    pub sheets: Vec<Sheet>,
    /// Rows of ours, each with one that it is held against.
    pub rivals: Vec<(String, String)>,
    /// What they say, for who reads one paragraph.
    pub words: String,
    /// What they say, figure by figure.
    pub says: Vec<String>,
}

/// Figures of one kind: a row for each subject, a column for each circumstance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sheet {
    /// What it shows.
    pub title: String,
    /// What a figure is.
    pub unit: String,
    /// How it is drawn.
    pub shape: Shape,
    /// The rows.
    pub rows: Vec<Row>,
}

/// How a sheet is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// Bars in groups.
    Bars,
    /// A line for each row, over the number that begins the name of each column.
    Lines {
        /// What the columns are.
        x: String,
        /// Both axes are logarithmic.
        log: bool,
    },
    /// Not at all.
    Table,
}

/// One subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub cells: Vec<Cell>,
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Its column.
    pub column: String,
    /// What each run gave.
    pub runs: Vec<f64>,
}

impl Sheet {
    /// An empty one.
    #[must_use]
    pub fn new(title: &str, unit: &str, shape: Shape) -> Self {
        Self { title: title.to_owned(), unit: unit.to_owned(), shape, rows: Vec::new() }
    }

    /// Adds what a run gave.
    pub fn add(&mut self, row: &str, column: &str, run: f64) {
        let index = self.rows.iter().position(|known| known.name == row).unwrap_or_else(|| {
            self.rows.push(Row { name: row.to_owned(), cells: Vec::new() });
            self.rows.len() - 1
        });
        let cells = &mut self.rows[index].cells;
        match cells.iter_mut().find(|cell| cell.column == column) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell { column: column.to_owned(), runs: vec![run] }),
        }
    }

    /// The figure of a row and a column.
    #[must_use]
    pub fn get(&self, row: &str, column: &str) -> Option<&Cell> {
        self.rows.iter().find(|known| known.name == row)?.cells.iter().find(|cell| cell.column == column)
    }

    /// The median of a figure.
    #[must_use]
    pub fn median(&self, row: &str, column: &str) -> Option<f64> {
        self.get(row, column).map(Cell::median)
    }

    /// All columns, in the order in which they came.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = Vec::new();
        for cell in self.rows.iter().flat_map(|row| &row.cells) {
            if !columns.contains(&cell.column.as_str()) {
                columns.push(&cell.column);
            }
        }
        columns
    }

    /// As a table of Markdown: medians, with the least and the most in brackets where there is more than one run.
    #[must_use]
    pub fn markdown(&self) -> String {
        let columns = self.columns();
        let mut out = format!("{} ({})\n\n| |", self.title, self.unit);
        columns.iter().for_each(|column| out += &format!(" {column} |"));
        out += "\n| --- |";
        columns.iter().for_each(|_| out += " ---: |");
        out.push('\n');
        for row in &self.rows {
            // Writing to a string cannot fail.
            let _ = write!(out, "| {} |", row.name);
            for column in &columns {
                let cell = row.cells.iter().find(|cell| cell.column == *column);
                let _ = write!(out, " {} |", cell.map_or_else(|| "-".to_owned(), Cell::shown));
            }
            out.push('\n');
        }
        out
    }

    /// Whether a higher figure is the better one; `None` where neither is.
    #[must_use]
    pub fn more_is_better(&self) -> Option<bool> {
        match self.unit.as_str() {
            GENERATORS => None,
            "%" => Some(true),
            unit => Some(unit.ends_with("/s")),
        }
    }

    /// What can be said of two rows in a column: the ratio of the first to the second, or that they do not differ by more than their runs do.
    #[must_use]
    pub fn compare(&self, column: &str, one: &str, other: &str) -> Option<Ratio> {
        let (one_cell, other_cell) = (self.get(one, column)?, self.get(other, column)?);
        let ratio = one_cell.median() / other_cell.median();
        let has_spread = one_cell.runs.len() > 1 && other_cell.runs.len() > 1;
        let is_apart = one_cell.least() > other_cell.most() || one_cell.most() < other_cell.least();
        let sense = match (has_spread, is_apart, self.more_is_better()) {
            (false, ..) => Sense::OneRun,
            (true, false, _) => Sense::Same,
            (true, true, Some(more)) if more == (ratio > 1.0) => Sense::Better,
            (true, true, Some(_)) => Sense::Worse,
            (true, true, None) => Sense::Other,
        };
        ratio.is_finite().then(|| Ratio {
            value: ratio,
            sense,
            other: other.to_owned(),
            text: format!("{}, {column}: {one} to {other}", self.title),
        })
    }

    /// The same within a sentence, after "is".
    #[must_use]
    pub fn words(&self, column: &str, one: &str, other: &str) -> String {
        self.compare(column, one, other).map_or_else(|| format!("not measured beside {other}"), |ratio| ratio.words())
    }

    /// What can be said of two rows over all columns, within a sentence, after "is": from the least to the most of their ratios.
    #[must_use]
    pub fn words_of_all(&self, one: &str, other: &str) -> String {
        let ratios: Vec<f64> =
            self.columns().iter().filter_map(|column| Some(self.compare(column, one, other)?.value)).collect();
        let [least, most] =
            [f64::min, f64::max].map(|choose: fn(f64, f64) -> f64| ratios.iter().copied().reduce(choose));
        match (least, most) {
            (Some(least), Some(most)) if ratios.len() > 1 => format!("{least:.2} to {most:.2} times that of {other}"),
            (Some(ratio), _) => format!("{ratio:.2} times that of {other}"),
            _ => format!("not measured beside {other}"),
        }
    }
}

/// How one figure is to another.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// The first by the second, medians.
    pub value: f64,
    /// What that means.
    pub sense: Sense,
    other: String,
    text: String,
}

/// What the ratio of two figures means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// No run of the first is as bad as the best of the second.
    Better,
    /// No run of the first is as good as the worst of the second.
    Worse,
    /// They are apart, and neither is better.
    Other,
    /// Their runs overlap.
    Same,
    /// There is one run of one of them, so that nobody knows how much runs differ.
    OneRun,
}

impl Ratio {
    /// A sentence, which with a bound also says whether it is kept.
    #[must_use]
    pub fn says(&self, bound: Option<Bound>) -> String {
        let differs = !matches!(self.sense, Sense::Same | Sense::OneRun);
        let verdict = match bound {
            // Which of two is better must be seen in the runs.
            Some(bound) if bound.is_order() && !differs => format!(" (wanted {bound})"),
            Some(bound) => bound.verdict(self.value),
            None => String::new(),
        };
        let sense = match self.sense {
            Sense::Better => ", better",
            Sense::Worse => ", worse",
            Sense::Other => "",
            Sense::Same => "; the runs of the two overlap, so that this is no difference",
            Sense::OneRun => "; one run does not say whether this is a difference",
        };
        format!("{}: {:.2}{sense}{verdict}", self.text, self.value)
    }

    fn words(&self) -> String {
        match self.sense {
            Sense::Same => format!("not to be told from that of {} ({:.2} times)", self.other, self.value),
            _ => format!("{:.2} times that of {}", self.value, self.other),
        }
    }
}

/// Unit of what is the generator's own, and so neither good nor bad of a server.
pub const GENERATORS: &str = "us of the generator";

/// How a bound that is not kept is marked, by which a report finds it.
pub const MISSED: &str = "**missed**";

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
}

impl Bound {
    /// It asks which of two is more.
    fn is_order(self) -> bool {
        matches!(self, Self::AtLeast(bound) | Self::AtMost(bound) if bound == 1.0)
    }

    /// Whether a figure keeps it.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    /// The same in brackets, to be put behind the figure.
    #[must_use]
    pub fn verdict(self, value: f64) -> String {
        format!(" (wanted {self}: {})", if self.holds(value) { "met" } else { MISSED })
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

impl Cell {
    /// The middle run; of an even number, the lower of the two.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quarter(2)
    }

    /// The run below which so many quarters of the others are.
    #[must_use]
    pub fn quarter(&self, quarters: usize) -> f64 {
        let mut runs = self.runs.clone();
        runs.sort_by(f64::total_cmp);
        runs.get(runs.len().saturating_sub(1) * quarters / 4).copied().unwrap_or(f64::NAN)
    }

    /// The least.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.runs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The most.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    fn shown(&self) -> String {
        if self.runs.len() < 2 {
            return number(self.median());
        }
        format!("{} ({}-{})", number(self.median()), number(self.least()), number(self.most()))
    }
}

/// A number with as many digits as are worth reading, thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() < 100.0 {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        let text = format!("{value:.digits$}");
        let cut = text.trim_end_matches('0').trim_end_matches('.');
        return if text.contains('.') { cut.to_owned() } else { text };
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

impl Results {
    /// Figures of ours that are worse than those of who they are held against, a line for each of these and each sheet.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (ours, other) in &self.rivals {
            for sheet in &self.sheets {
                let mut lost = Vec::new();
                for column in sheet.columns() {
                    let ratio = sheet.compare(column, ours, other).filter(|ratio| ratio.sense == Sense::Worse);
                    if let (Some(ratio), Some(one), Some(two)) =
                        (ratio, sheet.median(ours, column), sheet.median(other, column))
                    {
                        lost.push(format!("{column}: {} to {}, {:.2}", number(one), number(two), ratio.value));
                    }
                }
                if !lost.is_empty() {
                    lines.push(format!("{ours} to {other}, {} ({}): {}", sheet.title, sheet.unit, lost.join("; ")));
                }
            }
        }
        lines
    }

    /// The part of a report that this bench is: the title's level is the second.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!("## {}\n\n{}\n\n    {}\n\n", self.bench, self.about, self.command);
        if self.quick {
            out += "This was a quick run, to see that it works: its figures mean little.\n\n";
        }
        for (index, sheet) in self.sheets.iter().enumerate() {
            out += &sheet.markdown();
            out.push('\n');
            if sheet.shape != Shape::Table {
                let file = plot_name(&self.bench, index);
                out += &format!("![{}]({file})\n\n", sheet.title);
            }
        }
        if !self.quick {
            out += &format!("{}\n\n", self.words);
        }
        if !self.says.is_empty() {
            self.says.iter().for_each(|says| out += &format!("- {says}\n"));
            out.push('\n');
        }
        out
    }
}

/// The file of a plot.
#[must_use]
pub fn plot_name(bench: &str, index: usize) -> String {
    format!("{bench}-{index}.svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let mut sheet = Sheet::new("Peak", "answers/s", Shape::Bars);
        for (row, runs) in [("a", [300.0, 100.0, 200.0]), ("b", [110.0, 90.0, 100.0]), ("c", [400.0, 500.0, 450.0])] {
            runs.into_iter().for_each(|run| sheet.add(row, "small", run));
        }
        sheet.add("a", "large", 1_234_567.0);
        sheet
    }

    #[test]
    fn a_table_has_medians_and_spreads() {
        assert_eq!(
            sheet().markdown(),
            "Peak (answers/s)\n\n| | small | large |\n| --- | ---: | ---: |\n| a | 200 (100-300) | 1,234,567 |\n| b | 100 (90-110) \
             | - |\n| c | 450 (400-500) | - |\n"
        );
    }

    #[test]
    fn a_difference_within_the_spread_is_none() {
        let sheet = sheet();
        let near = sheet.compare("small", "a", "b").unwrap();
        assert!(near.sense == Sense::Same && (near.value - 2.0).abs() < 1e-9);
        assert!(near.says(None).contains("no difference"));
        assert_eq!(sheet.words("small", "a", "b"), "not to be told from that of b (2.00 times)");
        let far = sheet.compare("small", "c", "b").unwrap();
        assert_eq!(far.sense, Sense::Better);
        assert!(far.says(Some(Bound::AtLeast(4.5))).ends_with("c to b: 4.50, better (wanted at least 4.5: met)"));
        assert!(far.says(Some(Bound::AtMost(4.0))).contains(MISSED));
        assert_eq!(sheet.words("small", "c", "b"), "4.50 times that of b");
        assert!(sheet.compare("small", "c", "nobody").is_none());
        assert_eq!(sheet.words("small", "c", "nobody"), "not measured beside nobody");
    }

    /// One run has no spread, so that no other can be seen to differ from it.
    #[test]
    fn a_difference_from_a_single_run_is_none() {
        let mut sheet = sheet();
        sheet.add("b", "large", 1.0);
        let ratio = sheet.compare("large", "a", "b").unwrap();
        assert_eq!(ratio.sense, Sense::OneRun);
        assert!(ratio.says(None).contains("one run"));
    }

    #[test]
    fn what_is_better_depends_on_the_unit() {
        for (unit, better, worse) in [
            ("answers/s", Sense::Better, Sense::Worse),
            ("%", Sense::Better, Sense::Worse),
            ("us", Sense::Worse, Sense::Better),
            ("ns an answer", Sense::Worse, Sense::Better),
            (GENERATORS, Sense::Other, Sense::Other),
        ] {
            let sheet = Sheet { unit: unit.to_owned(), ..sheet() };
            let sense = |one, other| sheet.compare("small", one, other).unwrap().sense;
            assert_eq!((sense("c", "b"), sense("b", "c")), (better, worse), "{unit}");
        }
    }

    #[test]
    fn ratios_of_all_columns_are_a_range() {
        let mut sheet = sheet();
        assert_eq!(sheet.words_of_all("c", "b"), "4.50 times that of b");
        assert_eq!(sheet.words_of_all("c", "nobody"), "not measured beside nobody");
        [30.0, 30.0].iter().for_each(|run| sheet.add("b", "large", *run));
        [60.0, 60.0].iter().for_each(|run| sheet.add("c", "large", *run));
        assert_eq!(sheet.words_of_all("c", "b"), "2.00 to 4.50 times that of b");
    }

    #[test]
    fn quarters_are_runs() {
        let cell = |runs: &[f64]| Cell { column: String::new(), runs: runs.to_vec() };
        let five = cell(&[50.0, 10.0, 40.0, 20.0, 30.0]);
        assert_eq!([1, 2, 3].map(|quarters| five.quarter(quarters)), [20.0, 30.0, 40.0]);
        assert_eq!(cell(&[7.0]).quarter(3), 7.0);
        assert!(cell(&[]).median().is_nan());
    }

    #[test]
    fn numbers_are_as_long_as_they_are_worth() {
        for (value, shown) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (2.0, "2"),
            (12.34, "12.3"),
            (100.0, "100"),
            (99.99, "100"),
            (1234.5, "1,234"),
            (1_000_000.0, "1,000,000"),
            (-4321.0, "-4,321"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), shown, "{value}");
        }
    }
}
