// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view on this terminal. The terminal is restored at the end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{Nanos, Status};
use rampart_status::{Key, Shown, View, draw};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::LiveError;
use crate::low_rate_meters::{LowRateMeters, MeterProgram};
use crate::sampler::{POLL, Sampler, wait};

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

/// Shows the status live on this terminal until a key ends it or `stop` is set. Updates it after
/// each `interval`. `meter` is the program of the meters, or the reason why nothing is measured.
///
/// # Errors
/// If the active plan cannot be read or the terminal fails.
pub fn watch(
    meter: Result<MeterProgram, String>,
    interval: Nanos,
    tool_version: &'static str,
    stop: &AtomicBool,
) -> Result<(), LiveError> {
    let mut sampler = Sampler::start(tool_version)?;
    if !wait(interval, stop) {
        return Ok(());
    }
    let first = sampler.next_status()?;
    let mut meters = match meter {
        Ok(program) => LowRateMeters::start(program, sampler.plan()?.as_ref(), &first),
        Err(why) => LowRateMeters::off(why),
    };
    // Dropped before the meters, whose end may take a moment.
    let mut screen = Screen::enter()?;
    live(
        &mut screen,
        &mut sampler,
        first,
        &mut meters,
        interval,
        stop,
    )
}

fn live(
    screen: &mut Screen,
    sampler: &mut Sampler,
    first: Status,
    meters: &mut LowRateMeters,
    interval: Nanos,
    stop: &AtomicBool,
) -> Result<(), LiveError> {
    let interval = Duration::from(interval);
    let (mut status, mut measured) = (first, (meters.latencies(), meters.remarks()));
    let mut view = View::default();
    let mut next = Instant::now() + interval;
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            // Also read while paused, so that the next interval is short.
            let read = sampler.next_status()?;
            meters.follow(sampler.plan()?.as_ref(), &read);
            if !view.is_paused() {
                status = read;
                measured = (meters.latencies(), meters.remarks());
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
