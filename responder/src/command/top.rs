//! `responder top`: what a running server does at this moment, drawn anew with every sample.
//!
//! A thread takes samples, so that keys are answered while the server is not. A server that has gone is asked again until it is back. Nothing in the server
//! knows of it: all comes from the status document and from `/proc`.

mod rates;
mod sample;
mod screen;

use std::{
    io::{IsTerminal, stdout},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli;
use rates::Rates;
use sample::Sample;
use screen::{Section, View};

/// How long keys are waited for until it is looked for samples and signals.
const LOOK: Duration = Duration::from_millis(100);

/// Shows frames until a key or a signal, or prints one.
pub fn run(flags: &cli::Top) -> Result<ExitCode> {
    if flags.once {
        once(flags)?;
    } else {
        ensure!(
            stdout().is_terminal(),
            "standard output is no terminal: `responder top --once` prints one frame as text"
        );
        live(flags)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Two samples, and what happened between them.
fn once(flags: &cli::Top) -> Result<()> {
    let before = Sample::take(&flags.control)?;
    thread::sleep(Duration::from_millis(flags.interval_ms));
    let now = Sample::take(&flags.control)?;
    let Some(rates) = Rates::between(&before, &now) else {
        bail!("the server was started anew between the two samples: ask again");
    };
    if flags.json {
        println!("{}", serde_json::to_string(&rates)?);
    } else {
        print!("{}", View { rates: Some(rates), is_printed: true, ..View::default() }.print());
    }
    Ok(())
}

fn live(flags: &cli::Top) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for signals")?;
    }
    let samples = sampler(flags);
    // This, too, has a panic give the terminal back before it is reported.
    let mut terminal =
        ratatui::try_init().inspect_err(|_| ratatui::restore()).context("cannot take over the terminal")?;
    let shown = show(&mut terminal, &samples, &stop);
    ratatui::restore();
    shown
}

/// Takes samples for as long as somebody receives them.
fn sampler(flags: &cli::Top) -> Receiver<Result<Sample>> {
    let (sender, samples) = mpsc::channel();
    let (control, interval) = (flags.control.clone(), Duration::from_millis(flags.interval_ms));
    thread::spawn(move || {
        while sender.send(Sample::take(&control)).is_ok() {
            thread::sleep(interval);
        }
    });
    samples
}

fn show(terminal: &mut DefaultTerminal, samples: &Receiver<Result<Sample>>, stop: &AtomicBool) -> Result<()> {
    let mut view = View { has_color: super::has_color(), ..View::default() };
    let mut last = None;
    let mut is_changed = true;
    while !stop.load(Relaxed) {
        if is_changed {
            terminal.draw(|frame| view.draw(frame)).context("cannot draw")?;
        }
        is_changed = event::poll(LOOK).context("cannot read keys")?;
        if is_changed {
            match event::read().context("cannot read keys")? {
                Event::Key(key) if key.kind != KeyEventKind::Release && is_end(key) => return Ok(()),
                Event::Key(key) if key.kind != KeyEventKind::Release => view.press(key.code),
                // Another size: drawn anew.
                _ => {}
            }
        }
        loop {
            match samples.try_recv() {
                Ok(sample) => is_changed |= view.take(&mut last, sample),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => bail!("the thread that asks the server has ended"),
            }
        }
    }
    Ok(())
}

/// Whether a key ends it. In raw mode Ctrl-C is one.
fn is_end(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || key.code == KeyCode::Char('c') && is_control
}

impl View {
    /// Takes a sample, or why there is none. Whether there is something new to see.
    fn take(&mut self, last: &mut Option<Sample>, sample: Result<Sample>) -> bool {
        if self.is_paused {
            return false;
        }
        match sample {
            Ok(sample) => {
                let rates = last.as_ref().and_then(|last| Rates::between(last, &sample));
                // After a restart there is nothing to compare yet; what was shown is of another process.
                self.rates = rates;
                self.error = None;
                *last = Some(sample);
            }
            Err(error) => self.error = Some(format!("trying again: {error:#}")),
        }
        true
    }

    fn press(&mut self, key: KeyCode) {
        let step = |by: usize| {
            let at = Section::ALL.iter().position(|section| *section == self.section).unwrap_or(0);
            Section::ALL[(at + by) % Section::ALL.len()]
        };
        match key {
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.has_help = !self.has_help,
            KeyCode::Char('z') | KeyCode::Enter => self.is_zoomed = !self.is_zoomed,
            KeyCode::Tab | KeyCode::Right => (self.section, self.scrolled) = (step(1), 0),
            KeyCode::BackTab | KeyCode::Left => (self.section, self.scrolled) = (step(Section::ALL.len() - 1), 0),
            KeyCode::Down => self.scrolled = (self.scrolled + 1).min(self.length()),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn keys_choose_what_is_shown() {
        let mut view = View::default();
        view.press(KeyCode::Tab);
        assert_eq!(view.section, Section::Matrix);
        for _ in 0..4 {
            view.press(KeyCode::Right);
        }
        assert_eq!(view.section, Section::Workers, "the sections go round");
        view.press(KeyCode::Left);
        assert_eq!(view.section, Section::Dropped);
        view.press(KeyCode::Down);
        assert_eq!(view.scrolled, 0, "nothing to scroll");
        for key in [KeyCode::Char('p'), KeyCode::Char('?'), KeyCode::Enter] {
            view.press(key);
        }
        assert!(view.is_paused && view.has_help && view.is_zoomed);
        view.press(KeyCode::Char(' '));
        assert!(!view.is_paused);
        for (code, modifiers, expected) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, true),
            (KeyCode::Esc, KeyModifiers::NONE, true),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, true),
            (KeyCode::Char('c'), KeyModifiers::NONE, false),
        ] {
            assert_eq!(is_end(KeyEvent::new(code, modifiers)), expected, "{code:?} {modifiers:?}");
        }
    }

    #[test]
    fn a_server_that_has_gone_is_asked_again() {
        let start = Instant::now();
        let sample = |seconds| Ok(rates::tests::sample(start, seconds));
        let (mut view, mut last) = (View::default(), None);
        assert!(view.take(&mut last, Err(anyhow::anyhow!("no responder answers"))));
        assert_eq!(view.error.as_deref(), Some("trying again: no responder answers"));
        view.take(&mut last, sample(1));
        assert!(view.error.is_none() && view.rates.is_none(), "one sample has no rates");
        view.take(&mut last, sample(2));
        let shown = view.rates.clone();
        assert!(shown.is_some());
        view.take(&mut last, Err(anyhow::anyhow!("gone")));
        assert!(view.error.is_some() && view.rates == shown, "what was seen last stays");
        let mut restarted = rates::tests::sample(start, 4);
        restarted.status.pid = 43;
        view.take(&mut last, Ok(restarted));
        assert!(view.error.is_none() && view.rates.is_none());
        view.is_paused = true;
        assert!(!view.take(&mut last, sample(5)), "paused");
    }
}
