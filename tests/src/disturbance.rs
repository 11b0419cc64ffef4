// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disturbances with a known result: a FIFO-99 thread that holds a CPU at recorded times, and a stopped
//! process.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rampart_model::{CpuId, Nanos};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// A time when the CPU was held (`CLOCK_MONOTONIC`).
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Start.
    pub from: Nanos,
    /// End.
    pub to: Nanos,
}

/// Returns the time of `CLOCK_MONOTONIC`.
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Holds `cpu` repeatedly for `length`, after a `pause` each, while `continues` returns true. The handle
/// returns the times. The thread spins at the highest priority; interrupts are still handled.
///
/// # Panics
/// The thread panics if it does not get the CPU or the priority.
#[must_use]
pub fn hold_while(
    cpu: CpuId,
    length: Duration,
    pause: Duration,
    mut continues: impl FnMut() -> bool + Send + 'static,
) -> JoinHandle<Vec<Held>> {
    thread::spawn(move || {
        let mut affinity = CpuSet::new();
        affinity.set(cpu.0 as usize);
        sched_setaffinity(None, &affinity).expect("affinity of the disturbing thread");
        set_highest_priority();
        let mut held = Vec::new();
        while continues() {
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

/// Stops a process and waits until each of its threads has stopped.
///
/// # Panics
/// If the process does not exist, or does not stop within a minute.
pub fn stop(process: Pid) {
    kill_process(process, Signal::STOP).expect("a process to stop");
    let end = Instant::now() + Duration::from_secs(60);
    while !is_stopped(process) {
        assert!(Instant::now() < end, "process {process:?} does not stop");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns whether every thread of a process is stopped, by proc_pid_stat(5).
fn is_stopped(process: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    tasks.expect("threads").flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
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
        "chrt cannot give the disturbing thread FIFO 99"
    );
}
