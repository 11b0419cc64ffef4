// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--watch`: the live view on this terminal. The terminal is restored at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{ExitCode, Status};
use rampart_status::{Key, Shown, View, draw};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::sampler::{POLL, Sampler, wait};
use super::{Meters, StatusArguments};
use crate::failure::Failure;

/// The terminal, restored when the value is dropped; the library restores it before a panic message.
#[derive(Debug)]
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| {
            ratatui::restore();
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Returns the error of a view without a terminal.
pub(in crate::commands) fn needs_terminal() -> Failure {
    Failure::usage(
        "--watch: standard input and output must be a terminal; fix: rampart status; fix: rampart \
         status --watch --on ssh:HOST",
    )
}

pub(super) fn run(arguments: &StatusArguments) -> Result<ExitCode, Failure> {
    if !rampart_bench::has_terminal() {
        return Err(needs_terminal());
    }
    // A second signal does not end the process at once, since the terminal must be restored.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut sampler = Sampler::start()?;
    if !wait(arguments.interval, &stop) {
        return Ok(ExitCode::Success);
    }
    let first = sampler.next()?;
    let mut meters = if arguments.no_meter {
        Meters::off("no latencies: --no-meter")
    } else {
        match Meters::start(sampler.plan()?.as_ref(), &first) {
            Ok(meters) => meters,
            Err(_) => Meters::off("no latencies: rampart-meter does not exist; set RAMPART_METER"),
        }
    };
    let mut screen = Screen::enter()?;
    let result = live(
        &mut screen,
        &mut sampler,
        first,
        &mut meters,
        arguments,
        &stop,
    );
    drop(screen);
    drop(meters);
    result.map(|()| ExitCode::Success)
}

fn live(
    screen: &mut Screen,
    sampler: &mut Sampler,
    first: Status,
    meters: &mut Meters,
    arguments: &StatusArguments,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let interval = Duration::from(arguments.interval);
    let (mut status, mut measured) = (first, (meters.latencies(), meters.running.remarks()));
    let mut view = View::default();
    let mut next = Instant::now() + interval;
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            // Also read while paused, so that the next interval is short.
            let read = sampler.next()?;
            meters.running.follow(sampler.plan()?.as_ref(), &read);
            if !view.is_paused() {
                status = read;
                measured = (meters.latencies(), meters.running.remarks());
            }
            next = Instant::now() + interval;
        }
        let shown = Shown {
            status: &status,
            latencies: &measured.0,
            remarks: &measured.1,
        };
        screen.0.draw(|frame| draw(frame, &shown, &view))?;
        // A key ends the wait at once, a signal within this time.
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left.clamp(Duration::from_millis(1), 2 * POLL))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && let Some(key) = self::key(key.code, key.modifiers)
            && !view.press(key)
        {
            return Ok(());
        }
    }
    Ok(())
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('p') => Key::Pause,
        KeyCode::Char('?') => Key::Help,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageDown => Key::NextPage,
        KeyCode::PageUp => Key::PreviousPage,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_the_documented_keys() {
        let plain = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), plain), Some(Key::Quit));
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Key::Quit)
        );
        assert_eq!(key(KeyCode::Char('c'), plain), None);
        assert_eq!(key(KeyCode::PageDown, plain), Some(Key::NextPage));
    }
}
