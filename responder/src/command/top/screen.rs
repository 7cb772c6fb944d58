//! A frame of `responder top`: drawn from rates and from what the keys have chosen, and from nothing else.

use std::collections::BTreeMap;

use ratatui::{
    Frame, Terminal,
    backend::TestBackend,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::rates::{Flow, Rates, Worker};

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) rates: Option<Rates>,
    /// Why there is nothing new.
    pub(super) error: Option<String>,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    pub(super) section: Section,
    /// The section has the screen to itself.
    pub(super) is_zoomed: bool,
    /// Lines of the section that are above what is shown.
    pub(super) scrolled: usize,
    pub(super) has_color: bool,
    /// A frame that is printed has no keys.
    pub(super) is_printed: bool,
}

/// A part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Section {
    #[default]
    Workers,
    Matrix,
    Rcodes,
    Qtypes,
    Dropped,
}

impl Section {
    pub(super) const ALL: [Self; 5] = [Self::Workers, Self::Matrix, Self::Rcodes, Self::Qtypes, Self::Dropped];

    fn title(self) -> &'static str {
        match self {
            Self::Workers => "WORKERS",
            Self::Matrix => "RX > TX, REPLIES/S",
            Self::Rcodes => "ANSWERS/S",
            Self::Qtypes => "TYPES/S",
            Self::Dropped => "DROPS, VERDICTS/S",
        }
    }
}

/// Head, sums and their gap; title, columns and gap of the workers.
const ABOVE: u16 = 3 + 3;
/// The sections below the workers: a title and eight lines.
const BELOW: u16 = 9;
const KEYS: &str = "q quit  p pause  tab section  up/down scroll  enter zoom  ? help";
const HELP: &str = "\
q, Esc, Ctrl-C       quit
p, space             pause, and go on
tab, left, right     choose a section
up, down             scroll it
enter, z             give it the whole screen, and back
?                    this help, and back

recv/s answ/s drop/s packets and TCP messages: received, answered, dropped
batch                packets taken at once, on average
usr sys sirq         percent of its CPU's time: user space, kernel, interrupts
                     and softirqs; whoever runs there
thr                  percent of the time in which the worker's own thread ran
TC/s limited/s       truncated answers; those over the rate limit
RX > TX              by which queue replies leave, for each queue that queries
                     came in by; ! marks those that leave by another one";

impl View {
    /// Draws a frame.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let keys = u16::from(!self.is_printed);
        let [head, sums, _, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(keys),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        frame.render_widget(Paragraph::new(KEYS).style(self.dim()), foot);
        if self.has_help {
            frame.render_widget(Paragraph::new(HELP), body);
            return;
        }
        let Some(rates) = &self.rates else { return };
        frame.render_widget(Paragraph::new(sums_line(rates)), sums);
        if self.is_zoomed {
            return self.section(frame, body, self.section, rates);
        }
        let [workers, below] = Layout::vertical([Constraint::Min(4), Constraint::Length(BELOW)]).areas(body);
        self.section(frame, workers, Section::Workers, rates);
        let widths = [26, 17, 13, 24].map(Constraint::Length);
        let [matrix, rcodes, qtypes, dropped] = Layout::horizontal(widths).areas(below);
        self.section(frame, matrix, Section::Matrix, rates);
        self.section(frame, rcodes, Section::Rcodes, rates);
        self.section(frame, qtypes, Section::Qtypes, rates);
        self.section(frame, dropped, Section::Dropped, rates);
    }

    /// The frame as text, 80 columns wide and as high as it needs to be, without blanks at the ends of lines.
    pub(super) fn print(&self) -> String {
        let workers = self.rates.as_ref().map_or(0, |rates| rates.workers.len());
        let height = ABOVE + BELOW + u16::try_from(workers).unwrap_or(u16::MAX - 100);
        self.text(80, height)
    }

    /// The same for a screen of this size.
    pub(super) fn text(&self, width: u16, height: u16) -> String {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        let Ok(_) = terminal.draw(|frame| self.draw(frame));
        let buffer = terminal.backend().buffer();
        let lines = buffer.content.chunks(usize::from(width).max(1)).map(|cells| {
            let line: String = cells.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned() + "\n"
        });
        lines.collect::<String>().trim_end().to_owned() + "\n"
    }

    fn head(&self) -> Line<'static> {
        let title = match &self.rates {
            Some(rates) => format!(
                "responder {}  pid {}  up {}  io {}  {}  {} zones",
                rates.version,
                rates.pid,
                duration(rates.uptime_s),
                rates.io,
                rates.service,
                rates.zones
            ),
            None => "responder".to_owned(),
        };
        let state = match (&self.error, self.is_paused, &self.rates) {
            (Some(error), ..) => format!("  {error}"),
            (None, true, _) => "  PAUSED".to_owned(),
            (None, false, None) => "  waiting for a second sample".to_owned(),
            (None, false, Some(rates)) => format!("  every {:.1} s", rates.interval_s),
        };
        // An error is long: it has the line to itself.
        let title = if self.error.is_some() { "responder".to_owned() } else { title };
        let style = if self.error.is_some() { self.color(Color::Red) } else { Style::new() };
        Line::from(vec![Span::styled(title, Style::new().bold()), Span::styled(state, style)])
    }

    /// A section's title and as many of its lines as there is room for.
    fn section(&self, frame: &mut Frame<'_>, area: Rect, section: Section, rates: &Rates) {
        let is_chosen = section == self.section && !self.is_printed;
        let lines = self.lines(section, rates, usize::from(area.width));
        let heads = usize::from(section == Section::Workers);
        let room = usize::from(area.height).saturating_sub(1 + heads);
        let rest = lines.len().saturating_sub(heads + room);
        let from = if is_chosen { self.scrolled.min(rest) } else { 0 };
        let more = rest - from;
        let title = if more > 0 { format!("{} (+{more})", section.title()) } else { section.title().to_owned() };
        let style = if is_chosen { Style::new().bold().reversed() } else { Style::new().bold() };
        let shown = lines.iter().take(heads).chain(lines.iter().skip(heads + from).take(room)).cloned();
        let text: Vec<Line<'_>> = [Line::from(Span::styled(title, style))].into_iter().chain(shown).collect();
        frame.render_widget(Paragraph::new(text), area);
    }

    /// How far a section can be scrolled is known when it is drawn; this is how many lines there are in all.
    pub(super) fn length(&self) -> usize {
        self.rates.as_ref().map_or(0, |rates| self.lines(self.section, rates, 80).len())
    }

    fn lines(&self, section: Section, rates: &Rates, width: usize) -> Vec<Line<'static>> {
        match section {
            Section::Workers => self.workers(&rates.workers),
            Section::Matrix => self.matrix(&rates.matrix, width),
            Section::Rcodes => top(&rates.rcodes, 9),
            Section::Qtypes => top(&rates.qtypes, 6),
            Section::Dropped => self.dropped(rates),
        }
    }

    fn workers(&self, workers: &[Worker]) -> Vec<Line<'static>> {
        let head = "                       cpu   recv/s   answ/s  drop/s batch   usr  sys sirq  thr";
        let line = |worker: &Worker| {
            let cpu = worker.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
            let [user, system, softirq] = match worker.cpu_use {
                Some(cpu) => {
                    [cpu.user_percent, cpu.system_percent, cpu.softirq_percent].map(|share| format!("{share:.0}"))
                }
                None => [(); 3].map(|()| "-".to_owned()),
            };
            let batch = worker.batch.map_or("-".to_owned(), |batch| format!("{batch:.1}"));
            let thread = worker.thread_percent.map_or("-".to_owned(), |share| format!("{share:.0}"));
            let rates = [worker.received_per_s, worker.answered_per_s].map(short);
            Line::from(vec![
                Span::raw(format!("{:<22} {cpu:>3} {:>8} {:>8} ", cut(&worker.name, 22), rates[0], rates[1])),
                Span::styled(
                    format!("{:>7}", short(worker.dropped_per_s)),
                    if worker.dropped_per_s > 0.0 { self.color(Color::Yellow) } else { Style::new() },
                ),
                Span::raw(format!(" {batch:>5}  {user:>4} {system:>4} {softirq:>4} {thread:>4}")),
            ])
        };
        [Line::styled(head, self.dim())].into_iter().chain(workers.iter().map(line)).collect()
    }

    /// A matrix where there is room for one, else a list of what is in it.
    fn matrix(&self, flows: &[Flow], width: usize) -> Vec<Line<'static>> {
        const COLUMN: usize = 7;
        let mut columns: Vec<u32> = flows.iter().map(|flow| flow.tx_queue).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut rows: Vec<(&str, u32)> = flows.iter().map(|flow| (flow.interface.as_str(), flow.rx_queue)).collect();
        rows.sort_unstable();
        rows.dedup();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return vec![Line::from("no bypass")] };
        let is_one = first.0 == last.0;
        let label = |interface: &str, queue| {
            if is_one { format!("rx {queue}") } else { format!("{interface} rx {queue}") }
        };
        let labels = rows.iter().map(|(interface, queue)| label(interface, *queue).len()).max().unwrap_or(0);
        if labels + COLUMN * columns.len() > width {
            return flows.iter().map(|flow| self.flow(flow)).collect();
        }
        let head: String = columns.iter().map(|queue| format!("{:>COLUMN$}", format!("tx {queue}"))).collect();
        let row = |(interface, rx_queue): &(&str, u32)| {
            let label = Span::raw(format!("{:<labels$}", label(interface, *rx_queue)));
            let cells = columns.iter().map(|tx_queue| {
                let is_here = |flow: &&Flow| {
                    (flow.interface.as_str(), flow.rx_queue, flow.tx_queue) == (*interface, *rx_queue, *tx_queue)
                };
                let here: Vec<&Flow> = flows.iter().filter(is_here).collect();
                let rate: f64 = here.iter().map(|flow| flow.replies_per_s).sum();
                let text = if here.is_empty() { ".".to_owned() } else { marked(*rx_queue, *tx_queue, rate) };
                Span::styled(format!("{text:>COLUMN$}"), self.way(*rx_queue, *tx_queue, rate))
            });
            Line::from([label].into_iter().chain(cells).collect::<Vec<_>>())
        };
        let head = Line::styled(format!("{:labels$}{head}", ""), self.dim());
        [head].into_iter().chain(rows.iter().map(row)).collect()
    }

    /// One entry of the list, 25 columns wide.
    fn flow(&self, flow: &Flow) -> Line<'static> {
        let way = format!(" {}>{}", flow.rx_queue, flow.tx_queue);
        let way = format!("{}{way}", cut(&flow.interface, 17_usize.saturating_sub(way.len()).max(1)));
        let rate = marked(flow.rx_queue, flow.tx_queue, flow.replies_per_s);
        Line::styled(format!("{way:<17}{rate:>8}"), self.way(flow.rx_queue, flow.tx_queue, flow.replies_per_s))
    }

    /// Replies off the diagonal are a fault.
    fn way(&self, rx_queue: u32, tx_queue: u32, rate: f64) -> Style {
        if rx_queue != tx_queue && rate > 0.0 { self.color(Color::Red) } else { Style::new() }
    }

    fn dropped(&self, rates: &Rates) -> Vec<Line<'static>> {
        let line = |(name, rate): (&str, f64)| format!("{:<16}{:>8}", cut(name, 16), short(rate));
        let drops = largest(rates.dropped.iter().chain(&rates.kernel_dropped)).into_iter();
        let drops = drops.map(|drop| Line::styled(line(drop), self.color(Color::Yellow)));
        drops.chain(largest(&rates.verdicts).into_iter().map(|verdict| Line::from(line(verdict)))).collect()
    }

    fn color(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    fn dim(&self) -> Style {
        self.color(Color::DarkGray)
    }
}

fn marked(rx_queue: u32, tx_queue: u32, rate: f64) -> String {
    let mark = if rx_queue != tx_queue && rate > 0.0 { "!" } else { "" };
    format!("{mark}{}", short(rate))
}

fn sums_line(rates: &Rates) -> String {
    let sum = |rate: fn(&Worker) -> f64| short(rates.workers.iter().map(rate).sum());
    format!(
        "recv/s {}  answ/s {}  drop/s {}  TC/s {}  limited/s {}",
        sum(|worker| worker.received_per_s),
        sum(|worker| worker.answered_per_s),
        sum(|worker| worker.dropped_per_s),
        short(rates.truncated_per_s),
        short(rates.limited_slipped_per_s + rates.dropped.get("limited_dropped").copied().unwrap_or_default())
    )
}

fn top(rates: &BTreeMap<String, f64>, name_width: usize) -> Vec<Line<'static>> {
    let rates = largest(rates).into_iter();
    rates.map(|(name, rate)| Line::from(format!("{name:<name_width$}{:>6}", short(rate)))).collect()
}

/// The largest rates first, those of 0 left out.
fn largest<'a>(rates: impl IntoIterator<Item = (&'a String, &'a f64)>) -> Vec<(&'a str, f64)> {
    let rates = rates.into_iter().map(|(name, rate)| (name.as_str(), *rate));
    let mut rates: Vec<(&str, f64)> = rates.filter(|(_, rate)| *rate > 0.0).collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    rates
}

/// A rate in six characters.
fn short(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 999_999.5 => format!("{rate:.0}"),
        rate => format!("{:.2}M", rate / 1e6),
    }
}

/// At most this many characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['~']).collect()
}

/// `12 s`, `3 m 04 s`, `1 h 02 m`, `5 d 03 h`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an uptime is not negative and fits")]
fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} m {seconds:02} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes:02} m"),
        (days, hours, ..) => format!("{days} d {hours:02} h"),
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
