//! What is said of a run: a document, and the table that is made from it.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    Outcome,
    pace::Load,
    peak::{Peak, Trial},
    questions::Kind,
};
use crate::wire::rcode::Rcode;

/// How it was asked.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Who was asked.
    pub target: String,
    /// `xdp` or `socket`.
    pub io: &'static str,
    /// The interface that queries left by.
    pub interface: String,
    /// `zero-copy`, `copy` or, for sockets, `kernel`.
    pub mode: &'static str,
    /// Threads that sent.
    pub threads: usize,
    /// Source ports.
    pub flows: usize,
    /// Different queries.
    pub queries: usize,
    /// Replies were not looked at (`--no-replies`).
    pub no_replies: bool,
}

/// What became of the queries.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How it was asked.
    pub setting: Setting,
    /// Queries a second that were to be sent; absent with a window.
    pub wanted_per_s: Option<f64>,
    /// Queries on their way at a time; absent with a rate.
    pub window: Option<usize>,
    /// For how many seconds queries were sent.
    pub seconds: f64,
    /// Queries.
    pub sent: u64,
    /// Queries a second.
    pub sent_per_s: f64,
    /// Queries with a reply in time that fits them.
    pub answered: u64,
    /// Answers a second.
    pub answered_per_s: f64,
    /// Queries without one, malformed ones apart; absent where replies are not looked at.
    pub lost: Option<u64>,
    /// Share of those that must be answered that was not, or too late; absent where replies are not looked at.
    pub loss: Option<f64>,
    /// Replies too late.
    pub late: u64,
    /// More replies to a query that had one.
    pub duplicate: u64,
    /// Replies that do not fit their query.
    pub wrong: u64,
    /// Frames that are no reply to any query.
    pub stray: u64,
    /// Answers with the TC bit.
    pub truncated: u64,
    /// Queries that were given up, since the generator was more than 50 ms late, or that the kernel did not take.
    pub not_sent: u64,
    /// Replies that nobody looked at (`--no-replies`).
    pub unseen: u64,
    /// By kind.
    pub kinds: Vec<KindReport>,
    /// Answers by RCODE.
    pub rcodes: Vec<(String, u64)>,
    /// From when a query was due to when its reply was there.
    pub latency_us: Option<Quantiles>,
    /// Of that, what the generator itself took until the query was sent.
    pub own_lag_us: Option<Quantiles>,
    /// What a search for the highest rate has found.
    pub peak: Option<PeakReport>,
}

/// Queries of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    /// Which.
    pub kind: Kind,
    /// Queries.
    pub sent: u64,
    /// Queries with a reply in time.
    pub answered: u64,
}

/// A distribution, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Quantiles {
    /// Half are below.
    pub p50: f64,
    /// Of ten, nine are below.
    pub p90: f64,
    /// Of 100, 99.
    pub p99: f64,
    /// Of 1,000, 999.
    pub p99_9: f64,
    /// All.
    pub max: f64,
}

/// What was found by a search.
#[derive(Clone, Debug, Serialize)]
pub struct PeakReport {
    /// The most answers a second with no more than the allowed loss.
    pub answered_per_s: f64,
    /// The most answers a second whatever was lost.
    pub most_answered_per_s: f64,
    /// What ended the search is the generator, which could send no more: the server may be able to do more.
    pub limited_by_generator: bool,
    /// All trials.
    pub trials: Vec<Trial>,
}

impl Report {
    /// Of one run.
    #[must_use]
    pub fn new(setting: Setting, outcome: &Outcome) -> Self {
        let tally = &outcome.tally;
        let looked = !setting.no_replies;
        let (wanted_per_s, window) = match outcome.load {
            Load::Rate(rate) => (Some(rate), None),
            Load::Window(window) => (None, Some(window)),
        };
        let kinds = Kind::ALL
            .into_iter()
            .map(|kind| KindReport { kind, sent: tally.sent[kind as usize], answered: tally.answered[kind as usize] })
            .filter(|kind| kind.sent > 0);
        let rcodes = tally.rcodes.iter().zip(0..).filter(|(count, _)| **count > 0).map(|(count, code)| {
            let name = Rcode(code).name();
            (if name == "other" { format!("RCODE{code}") } else { name.to_owned() }, *count)
        });
        Self {
            setting,
            wanted_per_s,
            window,
            seconds: outcome.asked_for.as_secs_f64(),
            sent: tally.all_sent(),
            sent_per_s: outcome.sent_per_s(),
            answered: tally.all_answered(),
            answered_per_s: outcome.answered_per_s(),
            lost: looked.then(|| tally.lost()),
            loss: looked.then(|| tally.loss()),
            late: tally.late,
            duplicate: tally.duplicate,
            wrong: tally.wrong,
            stray: tally.stray,
            truncated: tally.truncated,
            not_sent: tally.not_sent,
            unseen: outcome.unseen,
            kinds: kinds.collect(),
            rcodes: rcodes.collect(),
            latency_us: Quantiles::of(&tally.latency),
            own_lag_us: Quantiles::of(&tally.lag),
            peak: None,
        }
    }

    /// Of a search: the best trial, and all of them.
    #[must_use]
    pub fn with_peak(mut self, peak: &Peak) -> Self {
        self.peak = Some(PeakReport {
            answered_per_s: self.answered_per_s,
            most_answered_per_s: peak.most_answered_per_s(),
            limited_by_generator: peak.limited_by_generator,
            trials: peak.trials.clone(),
        });
        self
    }

    /// The table.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let sent = match (self.wanted_per_s, self.window) {
            (Some(wanted), _) => format!("{}/s of {}/s", whole(self.sent_per_s), whole(wanted)),
            (_, Some(window)) => format!("{}/s, {window} at a time", whole(self.sent_per_s)),
            _ => String::new(),
        };
        line(out, "sent", self.sent, &sent)?;
        if self.not_sent > 0 {
            line(out, "not sent", self.not_sent, "this generator was too slow, or its kernel did not take them")?;
        }
        if self.unseen > 0 {
            line(
                out,
                "replies",
                self.unseen,
                &format!("{}/s, not looked at", whole(self.unseen as f64 / self.seconds)),
            )?;
        }
        if let (Some(lost), Some(loss)) = (self.lost, self.loss) {
            line(out, "answered", self.answered, &format!("{}/s", whole(self.answered_per_s)))?;
            line(out, "lost", lost, &format!("{:.3} %", 100.0 * loss))?;
        }
        for (name, count) in [
            ("late", self.late),
            ("duplicate", self.duplicate),
            ("wrong", self.wrong),
            ("stray", self.stray),
            ("truncated", self.truncated),
        ] {
            if count > 0 {
                line(out, name, count, "")?;
            }
        }
        for (name, count) in &self.rcodes {
            line(out, name, *count, "")?;
        }
        if self.kinds.len() > 1 {
            for kind in &self.kinds {
                let share = 100.0 * kind.answered as f64 / kind.sent.max(1) as f64;
                let answered = if self.setting.no_replies { String::new() } else { format!("{share:.2} % answered") };
                line(out, kind.kind.name(), kind.sent, &answered)?;
            }
        }
        for (name, quantiles) in [("latency", &self.latency_us), ("of it ours", &self.own_lag_us)] {
            if let Some(Quantiles { p50, p90, p99, p99_9, max }) = quantiles
                && (name == "latency" || self.latency_us.is_some())
            {
                writeln!(
                    out,
                    "{name:<16} p50 {p50:.0} us, p90 {p90:.0}, p99 {p99:.0}, p99.9 {p99_9:.0}, max {max:.0}"
                )?;
            }
        }
        if let Some(peak) = &self.peak {
            writeln!(
                out,
                "{:<16} {}/s with {:.3} % lost; {}/s at most, whatever was lost{}",
                "peak",
                whole(peak.answered_per_s),
                100.0 * self.loss.unwrap_or_default(),
                whole(peak.most_answered_per_s),
                if peak.limited_by_generator { "; the generator could send no more" } else { "" }
            )?;
        }
        Ok(())
    }
}

impl Quantiles {
    fn of(histogram: &hdrhistogram::Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        (!histogram.is_empty()).then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max() as f64 / 1000.0,
        })
    }
}

fn line(out: &mut String, name: &str, count: u64, more: &str) -> std::fmt::Result {
    writeln!(out, "{}", format!("{name:<16} {count:>14}  {more}").trim_end())
}

/// A number without what is behind its point.
#[must_use]
pub fn whole(number: f64) -> String {
    format!("{number:.0}")
}
