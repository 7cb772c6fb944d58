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
const TRIALS_MAX: usize = 32;

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
    /// Something came back, be it wrong.
    pub heard: bool,
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

/// What a search asks with.
pub trait Generator {
    /// Asks so many queries a second for so long.
    fn ask(&mut self, rate: f64, length: Duration) -> Result<Outcome>;
    /// The search is to end with what it has.
    fn is_stopped(&self) -> bool;
}

impl Generator for Flood {
    fn ask(&mut self, rate: f64, length: Duration) -> Result<Outcome> {
        self.run(Load::Rate(rate), length, &mut |_, _| {})
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped()
    }
}

/// Searches with trials of this length, until a rate that loses no more than `max_loss` and one that loses more differ by the share `within` only.
pub fn find(
    generator: &mut impl Generator,
    max_loss: f64,
    within: f64,
    length: Duration,
    mut tell: impl FnMut(&Trial),
) -> Result<Peak> {
    let (mut good, mut bad, mut rate) = (0.0, f64::INFINITY, FIRST_RATE);
    let (mut step, mut met_bad, mut again) = (within, false, false);
    let mut peak = Peak { trials: Vec::new(), best: None, limited_by_generator: false };
    while peak.trials.len() < TRIALS_MAX && rate >= 1.0 && !generator.is_stopped() {
        // Something else on this machine may have been in the way: a rate is too high if it is so each time.
        let mut tries = 0;
        let (outcome, trial) = loop {
            let outcome = generator.ask(rate, length)?;
            let trial = judge(rate, max_loss, &outcome);
            tries += 1;
            if tries == TRIES || trial.good && trial.as_offered || generator.is_stopped() {
                break (outcome, trial);
            }
        };
        tell(&trial);
        let is_better = peak.best.as_ref().is_none_or(|best| best.answered_per_s() < trial.answered_per_s);
        if trial.good && is_better {
            peak.best = Some(outcome);
        }
        let middle = |good: f64, bad: f64| (good + bad) / 2.0;
        if trial.good && trial.as_offered {
            good = rate;
            bad = if again { f64::INFINITY } else { bad };
            rate = if met_bad { (good * (1.0 + step)).min(middle(good, bad)) } else { 2.0 * rate };
            step = if met_bad { 2.0 * step } else { within };
        } else {
            (bad, met_bad) = (rate, true);
            peak.limited_by_generator = trial.good;
            // Of too much a server answers about what it can.
            let guess = ANSWERABLE * trial.answered_per_s;
            rate =
                if guess > good * (1.0 + within) && guess < bad / (1.0 + within) { guess } else { middle(good, bad) };
            step = within;
        }
        let is_dead = peak.trials.is_empty() && !trial.heard;
        peak.trials.push(trial);
        let is_found = bad / f64::max(good, 1.0) <= 1.0 + within;
        if is_dead || is_found && again {
            break;
        }
        // It may have been in the way for longer than all tries took, so that what seemed to be too high is tried once more.
        again = is_found;
        rate = if again { bad } else { rate };
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
        heard: outcome.tally.heard_any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flood::tally::Tally;

    const LENGTH: Duration = Duration::from_secs(1);
    const WITHIN: f64 = 0.05;

    /// A generator that sends no faster than `sends`, before a server that answers no faster than `answers`, and half of that when it is `busy`.
    struct Model {
        sends: f64,
        answers: f64,
        /// Asks that the server is busy during, by their number.
        busy: fn(usize) -> bool,
        asked: usize,
        /// Asks until it is stopped.
        stop_after: usize,
    }

    impl Default for Model {
        fn default() -> Self {
            Self { sends: f64::INFINITY, answers: f64::INFINITY, busy: |_| false, asked: 0, stop_after: usize::MAX }
        }
    }

    impl Generator for Model {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates of this model are small")]
        fn ask(&mut self, rate: f64, length: Duration) -> Result<Outcome> {
            let can = if (self.busy)(self.asked) { self.answers / 2.0 } else { self.answers };
            self.asked += 1;
            let sent = rate.min(self.sends);
            let mut tally = Tally::default();
            tally.sent[0] = sent as u64;
            tally.answered[0] = sent.min(can) as u64;
            Ok(Outcome { tally, asked_for: length, load: Load::Rate(rate), unseen: 0 })
        }

        fn is_stopped(&self) -> bool {
            self.asked >= self.stop_after
        }
    }

    fn found(model: &mut Model) -> Peak {
        find(model, 0.01, WITHIN, LENGTH, |_| {}).expect("the model does not fail")
    }

    fn best(peak: &Peak) -> f64 {
        peak.best.as_ref().expect("something was answered").answered_per_s()
    }

    #[test]
    fn the_peak_is_found_wherever_it_is() {
        for answers in [50.0, 999.0, 99_000.0, 100_000.0, 101_000.0, 350_000.0, 1_234_567.0, 25_000_000.0] {
            let mut model = Model { answers, ..Model::default() };
            let peak = found(&mut model);
            let best = best(&peak);
            assert!(best <= answers && best >= answers / (1.0 + WITHIN), "{best} of {answers}");
            assert!(!peak.limited_by_generator && peak.most_answered_per_s() >= best, "{answers}");
            // Near what a server answers of too much there is little left to search.
            assert!(peak.trials.len() <= 15, "{} trials for {answers}", peak.trials.len());
        }
    }

    #[test]
    fn a_moment_in_which_the_server_is_busy_is_not_its_peak() {
        let mut model = Model { answers: 350_000.0, busy: |ask| ask % 3 == 0, ..Model::default() };
        assert!(best(&found(&mut model)) >= 350_000.0 / (1.0 + WITHIN));
    }

    /// It seems to answer half as much as long as three tries take.
    #[test]
    fn a_while_in_which_the_server_is_busy_is_not_its_peak() {
        let mut model = Model { answers: 500_000.0, busy: |ask| (2..5).contains(&ask), ..Model::default() };
        let peak = found(&mut model);
        assert!(peak.trials.iter().any(|trial| trial.wanted_per_s == 400_000.0 && !trial.good));
        assert!(best(&peak) >= 500_000.0 / (1.0 + WITHIN), "{}", best(&peak));
    }

    #[test]
    fn what_the_generator_cannot_send_is_not_held_against_the_server() {
        let peak = found(&mut Model { sends: 700_000.0, ..Model::default() });
        assert!(peak.limited_by_generator);
        assert!((650_000.0..=700_000.0).contains(&best(&peak)), "{}", best(&peak));
    }

    /// It is the generator's limit only if that is what ended the search.
    #[test]
    fn a_generator_that_was_too_slow_once_is_not_the_limit_of_a_server_that_is_slower() {
        let peak = found(&mut Model { sends: 390_000.0, answers: 350_000.0, ..Model::default() });
        assert!(peak.trials.iter().any(|trial| !trial.as_offered));
        assert!(!peak.limited_by_generator && best(&peak) >= 350_000.0 / (1.0 + WITHIN));
    }

    #[test]
    fn a_server_that_answers_nothing_has_no_peak_and_the_search_ends() {
        let mut model = Model { answers: 0.0, ..Model::default() };
        let peak = found(&mut model);
        assert!(peak.best.is_none() && !peak.trials[0].heard);
        // Nothing can be learned by asking on.
        assert_eq!(model.asked, TRIES);
    }

    #[test]
    fn a_search_that_is_stopped_ends_with_what_it_has() {
        let mut model = Model { answers: 350_000.0, stop_after: 2, ..Model::default() };
        let peak = found(&mut model);
        assert_eq!((model.asked, peak.trials.len()), (2, 2));
        assert!((best(&peak) - 200_000.0).abs() < 1.0);
    }
}
