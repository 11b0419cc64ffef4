// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart-meter load`: keeps a CPU or the memory busy for some seconds, on a machine without
//! another load program or in a cell without an operating system. The end of its input ends it
//! early. It prints one line when the load runs, and one at its end with the CPU time used.

use std::ffi::OsString;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{CpuId, CpuSet, ExitCode, Nanos, SchedulingPolicy};

use super::CellMemoryLocation;
use super::cell::CellLoad;
use crate::engine::load::{Load, LoadForm};
use crate::linux::{clock, scheduling};

/// Size of the memory that a load accesses, in bytes. Small, because a Linux cell has little
/// memory.
const MEMORY_BYTES: usize = 32 << 20;
/// Slices between two checks of the clock.
const SLICES: u32 = 256;
/// Interval between two checks of a cell's state.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a cell may be late to begin or end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A requested load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadRequest {
    form: LoadForm,
    cpu: CpuId,
    duration: Duration,
}

impl LoadRequest {
    /// Parses the arguments `KIND --cpu CPU --seconds SECONDS`. Returns `None` for other arguments,
    /// and for a load that needs more than CPU and memory.
    #[must_use]
    pub fn parse(arguments: &[OsString]) -> Option<Self> {
        let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
        let words = words?;
        let [kind, "--cpu", cpu, "--seconds", seconds] = words.as_slice() else {
            return None;
        };
        let form = [LoadForm::Cpu, LoadForm::Memory, LoadForm::Cache]
            .into_iter()
            .find(|form| name(*form) == *kind)?;
        Some(Self {
            form,
            cpu: CpuId(cpu.parse().ok()?),
            duration: Duration::from_secs(seconds.parse().ok()?),
        })
    }
}

/// Returns the name as in `rampart_model::LoadKind`.
const fn name(form: LoadForm) -> &'static str {
    match form {
        LoadForm::Cpu => "cpu",
        LoadForm::Memory => "memory",
        LoadForm::Cache => "cache",
    }
}

/// Runs a load on this machine or in a cell.
#[must_use]
pub fn run_load(request: &LoadRequest, cell: Option<&CellMemoryLocation>) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // The thread blocks until the input ends and ends with the process.
    std::thread::spawn(move || {
        // An input that cannot be read counts as ended.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopped.store(true, Ordering::Relaxed);
    });
    let done = match cell {
        Some(location) => in_cell(request, location, &stop),
        None => here(request, &stop),
    };
    let Err(what) = done else {
        return ExitCode::Success;
    };
    print_line(&format!("rampart-meter load: {what}"));
    ExitCode::Failure
}

fn here(request: &LoadRequest, stop: &AtomicBool) -> Result<(), String> {
    let cpu = request.cpu;
    let placed = scheduling::set_policy(SchedulingPolicy::Other)
        .and_then(|()| scheduling::set_affinity(&CpuSet::single(cpu)));
    placed.map_err(|error| format!("CPU {cpu}: {error}"))?;
    let words = match request.form {
        LoadForm::Cpu => 0,
        LoadForm::Memory | LoadForm::Cache => MEMORY_BYTES / 8,
    };
    // Written, so that the memory is allocated before the load is reported as begun.
    let memory: Vec<AtomicU64> = (0..words as u64).map(AtomicU64::new).collect();
    let mut load = Load::new(request.form, &memory);
    let (begin, before) = (Instant::now(), clock::thread_cpu());
    begun(request);
    while begin.elapsed() < request.duration && !stop.load(Ordering::Relaxed) {
        for _ in 0..SLICES {
            load.slice();
        }
    }
    ended(request, clock::thread_cpu().saturating_sub(before));
    Ok(())
}

fn in_cell(
    request: &LoadRequest,
    location: &CellMemoryLocation,
    stop: &AtomicBool,
) -> Result<(), String> {
    let silent = |what: &str| format!("the program in the cell does not answer: {what}");
    let mut load = CellLoad::give(location, request.form, Nanos::from(request.duration))
        .map_err(|refusal| refusal.finding.to_string())?;
    let begin = Instant::now();
    while !load.has_begun() {
        if begin.elapsed() > PATIENCE {
            return Err(silent("the load has not begun"));
        }
        std::thread::sleep(PAUSE);
    }
    begun(request);
    while !load.has_ended() {
        if stop.load(Ordering::Relaxed) {
            load.end().map_err(|refusal| refusal.finding.to_string())?;
        }
        if begin.elapsed() > request.duration + PATIENCE {
            return Err(silent("the load has not ended"));
        }
        std::thread::sleep(PAUSE);
    }
    ended(request, load.time());
    Ok(())
}

fn begun(request: &LoadRequest) {
    print_line(&format!(
        "rampart-meter load: {} begun on CPU {}",
        name(request.form),
        request.cpu
    ));
}

fn ended(request: &LoadRequest, time: Nanos) {
    print_line(&format!(
        "rampart-meter load: {} ended, CPU time {} ns",
        name(request.form),
        time.0
    ));
}

fn print_line(line: &str) {
    let mut output = std::io::stdout().lock();
    // If the output is closed, the line is not needed.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<LoadRequest> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        LoadRequest::parse(&words)
    }

    #[test]
    fn parses_loads_of_cpu_and_memory() {
        let request = parsed("cache --cpu 3 --seconds 12").expect("a load");
        assert_eq!((request.form, request.cpu), (LoadForm::Cache, CpuId(3)));
        assert_eq!(request.duration, Duration::from_secs(12));
        for wrong in [
            "io --cpu 0 --seconds 1",
            "idle --cpu 0 --seconds 1",
            "cpu --cpu x --seconds 1",
            "cpu --seconds 1",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn load_reports_the_time_of_its_cpu() {
        let cpu = scheduling::affinity().expect("ours").first().expect("one");
        let before = clock::thread_cpu();
        let request = LoadRequest {
            form: LoadForm::Cache,
            cpu,
            duration: Duration::from_millis(50),
        };
        here(&request, &AtomicBool::new(false)).expect("it runs");
        assert!(clock::thread_cpu() > before);
        // A stop request ends it before its ten minutes.
        let long = LoadRequest {
            duration: Duration::from_secs(600),
            ..request
        };
        here(&long, &AtomicBool::new(true)).expect("it runs");
    }
}
