// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the measuring threads of a running evaluation, from `/proc`.

use std::fs;

use rampart_model::CpuId;
use rampart_tests::limited::wait_until;

/// The measuring thread of a CPU, as it measures.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) cpu: CpuId,
}

/// Returns the measuring thread of a CPU, if one exists.
fn find(cpu: CpuId) -> Option<Meter> {
    let name = format!("meter/{cpu}");
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut threads = processes.flat_map(|process| {
        let tasks = fs::read_dir(process.path().join("task"));
        tasks.into_iter().flatten().flatten().map(move |task| {
            let number = |name: std::ffi::OsString| name.to_str()?.parse::<u32>().ok();
            (number(process.file_name()), number(task.file_name()), task)
        })
    });
    threads.find_map(|(process, thread, task)| {
        let found = fs::read_to_string(task.path().join("comm")).ok()?;
        (found.trim_end() == name).then_some(Meter {
            process: process?,
            thread: thread?,
            cpu,
        })
    })
}

/// Returns how often a thread has run, the third number of its `schedstat`.
fn times_run(meter: &Meter) -> u64 {
    let path = format!("/proc/{}/task/{}/schedstat", meter.process, meter.thread);
    let text = fs::read_to_string(path).unwrap_or_default();
    let third = text.split_whitespace().nth(2);
    third.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the measuring thread of a CPU if it measures: it wakes a thousand times a second or more, and each run
/// has a thread of its own.
pub(crate) fn that_measures(cpu: CpuId) -> Option<Meter> {
    find(cpu).filter(|meter| times_run(meter) > 30)
}

/// Waits until a meter measures on a CPU.
pub(crate) fn measuring(cpu: CpuId) -> Meter {
    let mut meter = None;
    wait_until("a meter measures", || {
        meter = that_measures(cpu);
        meter.is_some()
    });
    meter.expect("a meter")
}
