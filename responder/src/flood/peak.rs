//! The highest rate at which little is lost: doubled until it is too high, then looked for near what was answered of too much, and in between.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Flood, Outcome, pace::Load};

/// Where it begins.
const FIRST_RATE: f64 = 100_000.0;
/// So often a rate is tried that is too high.
const TRIES: usize = 3;
/// Of what was answered at a rate that is too high, so much is tried next.
const ANSWERABLE: f64 = 0.99;
/// Trials at most.
const TRIALS_MAX: usize = 24;
/// After a trial replies are waited for this long; what comes later was not answered at that rate.
const DRAIN: Duration = Duration::from_millis(100);

/// One trial.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// Queries a second that were to be sent.
    pub wanted_per_s: f64,
    /// That were sent.
    pub sent_per_s: f64,
    /// That were answered.
    pub answered_per_s: f64,
    /// Share of queries that were not answered.
    pub loss: f64,
    /// As much was sent as was wanted.
    pub as_offered: bool,
    /// Little enough was lost.
    pub good: bool,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Peak {
    /// All trials, in their order.
    pub trials: Vec<Trial>,
    /// The good one with the most answers.
    pub best: Option<Outcome>,
    /// What ended the search is the generator, which could send no more.
    pub limited_by_generator: bool,
}

impl Peak {
    /// The most answers a second of any trial, however many were lost.
    #[must_use]
    pub fn most_answered_per_s(&self) -> f64 {
        self.trials.iter().map(|trial| trial.answered_per_s).fold(0.0, f64::max)
    }
}

/// Searches with trials of this length, until a rate that loses no more than `max_loss` and one that loses more differ by the share `within` only.
pub fn find(
    flood: &mut Flood,
    max_loss: f64,
    within: f64,
    length: Duration,
    mut tell: impl FnMut(&Trial),
) -> Result<Peak> {
    let (mut good, mut bad, mut rate) = (0.0, f64::INFINITY, FIRST_RATE);
    let mut step = within;
    let mut peak = Peak { trials: Vec::new(), best: None, limited_by_generator: false };
    while peak.trials.len() < TRIALS_MAX
        && bad / f64::max(good, 1.0) > 1.0 + within
        && rate >= 1.0
        && !flood.is_stopped()
    {
        // Something else on this machine may have been in the way: a rate is too high if it is so each time.
        let mut tries = 0;
        let (outcome, trial) = loop {
            let outcome = flood.run(Load::Rate(rate), length, DRAIN, &mut |_, _| {})?;
            let trial = judge(rate, max_loss, &outcome);
            tries += 1;
            if tries == TRIES || trial.good && trial.as_offered || flood.is_stopped() {
                break (outcome, trial);
            }
        };
        tell(&trial);
        let is_better = peak.best.as_ref().is_none_or(|best| best.answered_per_s() < trial.answered_per_s);
        if trial.good && is_better {
            peak.best = Some(outcome);
        }
        peak.limited_by_generator |= !trial.as_offered;
        let middle = |good: f64, bad: f64| (good + bad) / 2.0;
        if trial.good && trial.as_offered {
            good = rate;
            rate = if bad.is_infinite() { 2.0 * rate } else { (good * (1.0 + step)).min(middle(good, bad)) };
            step = if bad.is_infinite() { within } else { 2.0 * step };
        } else {
            bad = rate;
            // Of too much a server answers about what it can.
            let guess = ANSWERABLE * trial.answered_per_s;
            rate =
                if guess > good * (1.0 + within) && guess < bad / (1.0 + within) { guess } else { middle(good, bad) };
            step = within;
        }
        peak.trials.push(trial);
    }
    Ok(peak)
}

fn judge(rate: f64, max_loss: f64, outcome: &Outcome) -> Trial {
    let loss = outcome.tally.loss();
    Trial {
        wanted_per_s: rate,
        sent_per_s: outcome.sent_per_s(),
        answered_per_s: outcome.answered_per_s(),
        loss,
        as_offered: outcome.is_as_offered(),
        good: outcome.tally.all_answered() > 0 && loss <= max_loss,
    }
}
