// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disturbance with a known answer: a FIFO-99 thread that holds a CPU at times it writes down.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use rampart_model::{CpuId, Nanos};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// When the CPU was held (`CLOCK_MONOTONIC`).
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// From here.
    pub from: Nanos,
    /// To here.
    pub to: Nanos,
}

/// `CLOCK_MONOTONIC` now.
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Holds `cpu` for `length`, `count` times, `pause` apart, the first time after `pause`. The
/// handle gives the times back. A spinning thread at the highest priority is the weaker kind of
/// block: interrupts still come through.
///
/// # Panics
/// In the thread, if it is not granted the CPU or the priority.
#[must_use]
pub fn hold(cpu: CpuId, length: Duration, count: usize, pause: Duration) -> JoinHandle<Vec<Held>> {
    thread::spawn(move || {
        let mut only = CpuSet::new();
        only.set(cpu.0 as usize);
        sched_setaffinity(None, &only).expect("affinity of the disturbing thread");
        set_highest_priority();
        let mut held = Vec::new();
        for _ in 0..count {
            thread::sleep(pause);
            let from = now();
            while now() < from + Nanos::from(length) {
                std::hint::spin_loop();
            }
            held.push(Held { from, to: now() });
        }
        held
    })
}

fn set_highest_priority() {
    let chrt = std::process::Command::new("chrt")
        .args([
            "--fifo",
            "--pid",
            "99",
            &rustix::thread::gettid().as_raw_nonzero().to_string(),
        ])
        .status();
    assert!(
        chrt.is_ok_and(|status| status.success()),
        "chrt gives the disturbing thread FIFO 99"
    );
}
