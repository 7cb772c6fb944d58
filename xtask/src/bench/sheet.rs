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
    /// What they say.
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

    /// What can be said of two rows in a column: the ratio of the first to the second, or that they do not differ by more than their runs do.
    #[must_use]
    pub fn compare(&self, column: &str, one: &str, other: &str) -> Option<Ratio> {
        let (one_cell, other_cell) = (self.get(one, column)?, self.get(other, column)?);
        let ratio = one_cell.median() / other_cell.median();
        ratio.is_finite().then(|| Ratio {
            value: ratio,
            differs: one_cell.least() > other_cell.most() || one_cell.most() < other_cell.least(),
            text: format!("{one} to {other}, {column}, {}", self.title.to_lowercase()),
        })
    }
}

/// How one figure is to another.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// The first by the second, medians.
    pub value: f64,
    /// No run of one is within the runs of the other.
    pub differs: bool,
    text: String,
}

impl Ratio {
    /// A sentence, which with a bound also says whether it is kept.
    #[must_use]
    pub fn says(&self, bound: Option<Bound>) -> String {
        let verdict = match bound {
            // Which of two is better must be seen in the runs.
            Some(bound) if bound.is_order() && !self.differs => format!(" (wanted {bound})"),
            Some(bound) if bound.holds(self.value) => format!(" (wanted {bound}: met)"),
            Some(bound) => format!(" (wanted {bound}: **missed**)"),
            None => String::new(),
        };
        let spread = if self.differs { "" } else { "; the runs of the two overlap, so that this is no difference" };
        format!("{}: {:.2}{verdict}{spread}", self.text, self.value)
    }
}

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
        let mut runs = self.runs.clone();
        runs.sort_by(f64::total_cmp);
        runs.get(runs.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
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
        assert!(!near.differs && (near.value - 2.0).abs() < 1e-9);
        assert!(near.says(None).contains("no difference"));
        let far = sheet.compare("small", "c", "b").unwrap();
        assert!(far.differs);
        assert!(far.says(Some(Bound::AtLeast(4.5))).ends_with("4.50 (wanted at least 4.5: met)"));
        assert!(far.says(Some(Bound::AtMost(4.0))).contains("missed"));
        assert!(sheet.compare("small", "c", "nobody").is_none());
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
