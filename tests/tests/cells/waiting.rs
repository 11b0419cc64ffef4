// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for events in a machine, and for the progress of its CPUs. Only a machine that hangs reaches a limit: nothing
//! depends on how busy the host is.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rampart_hypervisor_cells::remote::RUNS;

use crate::machine::{Attacked, Machine, Remote, ensure};

/// Maximum waiting time for something that takes milliseconds on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two looks at the machine's memory, and the number of looks between two at its process.
const PAUSE: Duration = Duration::from_micros(200);
const LOOKS: u64 = 500;

/// The start of a waiting time.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns whether the maximum waiting time is over, or QEMU has ended by itself.
    pub(crate) fn is_over(&self, machine: &Machine) -> bool {
        self.0.elapsed() > TIMEOUT || machine.expect_running().is_err()
    }
}

impl Machine {
    /// Waits for the condition, long enough also on a busy machine. Returns whether it became true.
    pub(crate) fn wait(&self, condition: impl Fn() -> bool) -> bool {
        let clock = Clock::start();
        for look in 1.. {
            if condition() {
                return true;
            }
            if look % LOOKS == 0 && clock.is_over(self) {
                return condition();
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Waits until a repeated order has run this many times more.
    pub(crate) fn wait_for_runs(&self, on: Remote, more: u64) -> Attacked {
        self.wait_for_runs_or(on, more, || false)
    }

    /// Waits for the same, or for the condition.
    pub(crate) fn wait_for_runs_or(
        &self,
        on: Remote,
        more: u64,
        condition: impl Fn() -> bool,
    ) -> Attacked {
        // The program sets the number to 0 when it begins the order.
        let (runs, last) = (|| self.value(on, RUNS), Cell::new(self.value(on, RUNS)));
        let counted = Cell::new(0);
        let enough = || {
            let (now, before) = (runs(), last.get());
            last.set(now);
            counted.set(counted.get() + now.checked_sub(before).unwrap_or(now));
            counted.get() >= more || condition()
        };
        ensure(self.wait(enough), || {
            format!(
                "a repeated order has run {} times, not {more}",
                counted.get()
            )
        })
    }
}
