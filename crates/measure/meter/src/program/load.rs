// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart-meter load`: keeps a CPU, the memory or a disk busy, on a machine without another load
//! program or in a cell without an operating system. The end of its input ends it, as does its time
//! if it has one. It prints one line when the load runs, and one at its end with the CPU time used.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{CpuId, CpuSet, ExitCode, LoadKind, Nanos, SchedulingPolicy};

use super::CellMemoryLocation;
use super::cell::CellLoad;
use crate::engine::load::{CACHE_BYTES, LoadForm, LoadLoop};
use crate::linux::{clock, scheduling};

/// Memory that `memory` accesses if the caller names no size, in bytes. Small, because a Linux cell
/// has little memory.
const MEMORY_BYTES: usize = 32 << 20;
/// Slices between two checks of the clock.
const SLICES: u32 = 256;
/// Size of the file of `io` and of its blocks, in bytes.
const FILE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: usize = 64 << 10;
/// Interval between two checks of a cell's state.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a cell may be late to begin or end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A requested load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadRequest {
    load: LoadKind,
    cpu: CpuId,
    /// When it ends; `None` if only the end of its input ends it.
    duration: Option<Duration>,
    /// Memory that it accesses.
    bytes: Option<usize>,
    /// The directory of the file of `io`.
    directory: Option<PathBuf>,
    /// Whether it begins only after a line of its input.
    wait: bool,
}

impl LoadRequest {
    /// Parses the arguments `KIND --cpu CPU [OPTION …]`. Returns `None` for other arguments.
    #[must_use]
    pub fn parse(arguments: &[OsString]) -> Option<Self> {
        let [kind, options @ ..] = arguments else {
            return None;
        };
        let load = LoadKind::ALL
            .into_iter()
            .find(|load| *load != LoadKind::Idle && kind == load.word())?;
        let mut cpu = None;
        let mut request = Self {
            load,
            cpu: CpuId(0),
            duration: None,
            bytes: None,
            directory: None,
            wait: false,
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            if option == "--wait" {
                request.wait = true;
                continue;
            }
            let value = options.next()?;
            let text = value.to_str();
            match option.to_str()? {
                "--cpu" => cpu = Some(CpuId(text?.parse().ok()?)),
                "--seconds" => request.duration = Some(Duration::from_secs(text?.parse().ok()?)),
                "--bytes" => request.bytes = Some(text?.parse().ok()?),
                "--directory" => request.directory = Some(PathBuf::from(value)),
                _ => return None,
            }
        }
        request.cpu = cpu?;
        (request.directory.is_some() == (load == LoadKind::Io)).then_some(request)
    }

    /// Returns whether the load has to end.
    fn is_over(&self, begin: Instant, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed)
            || self
                .duration
                .is_some_and(|duration| begin.elapsed() >= duration)
    }

    /// Returns the form of a load that needs only CPU and memory.
    const fn form(&self) -> Option<LoadForm> {
        match self.load {
            LoadKind::Cpu => Some(LoadForm::Cpu),
            LoadKind::Memory => Some(LoadForm::Memory),
            LoadKind::Cache => Some(LoadForm::Cache),
            LoadKind::Io | LoadKind::Idle => None,
        }
    }
}

/// Runs a load on this machine or in a cell.
#[must_use]
pub fn run_load(request: &LoadRequest, cell: Option<&CellMemoryLocation>) -> ExitCode {
    // Before the load may begin, its caller places this thread; threads that start later inherit that.
    if request.wait && !matches!(std::io::stdin().read_line(&mut String::new()), Ok(1..)) {
        return ExitCode::Success;
    }
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
    match (request.form(), &request.directory) {
        (Some(form), _) => compute(request, form, stop),
        (None, Some(directory)) => write_and_read(request, directory, stop),
        (None, None) => Err("io needs a directory".to_owned()),
    }
}

/// Keeps the CPU and, by the form, memory busy.
fn compute(request: &LoadRequest, form: LoadForm, stop: &AtomicBool) -> Result<(), String> {
    let bytes = match form {
        LoadForm::Cpu => 0,
        LoadForm::Memory => request.bytes.unwrap_or(MEMORY_BYTES),
        LoadForm::Cache => request.bytes.unwrap_or(CACHE_BYTES),
    };
    // Written, so that the memory is allocated before the load is reported as begun.
    let memory: Vec<AtomicU64> = (0..bytes as u64 / 8).map(AtomicU64::new).collect();
    let mut load = LoadLoop::new(form, &memory);
    let (begin, before) = (Instant::now(), clock::thread_cpu());
    begun(request);
    while !request.is_over(begin, stop) {
        for _ in 0..SLICES {
            load.slice();
        }
    }
    ended(request, clock::thread_cpu().saturating_sub(before));
    Ok(())
}

/// Writes and reads blocks of a file in random order; each write is brought to the disk. The file
/// has no name, so that nothing is left of it.
fn write_and_read(
    request: &LoadRequest,
    directory: &Path,
    stop: &AtomicBool,
) -> Result<(), String> {
    let path = directory.join(format!("rampart-meter-{}", std::process::id()));
    let problem = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(problem)?;
    std::fs::remove_file(&path).map_err(problem)?;
    file.set_len(FILE_BYTES).map_err(problem)?;
    let mut block = vec![0_u8; BLOCK_BYTES];
    let blocks = FILE_BYTES / BLOCK_BYTES as u64;
    let mut number = u64::from(std::process::id());
    let mut next_offset = || {
        // Knuth's MMIX generator; its high bits are the better ones.
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % blocks * BLOCK_BYTES as u64
    };
    let (begin, before) = (Instant::now(), clock::thread_cpu());
    begun(request);
    while !request.is_over(begin, stop) {
        // Other contents in each write, so that no layer below leaves it out.
        let contents = block[0].wrapping_add(1);
        block.fill(contents);
        file.write_all_at(&block, next_offset()).map_err(problem)?;
        file.sync_data().map_err(problem)?;
        file.read_exact_at(&mut block, next_offset())
            .map_err(problem)?;
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
    let (Some(form), Some(duration)) = (request.form(), request.duration) else {
        return Err("a cell makes the loads cpu, memory and cache, for a time".to_owned());
    };
    let mut load = CellLoad::give(location, form, Nanos::from(duration))
        .map_err(|refusal| refusal.finding.to_string())?;
    let begin = Instant::now();
    while !load.has_begun() {
        if begin.elapsed() > TIMEOUT {
            return Err(silent("the load has not begun"));
        }
        std::thread::sleep(PAUSE);
    }
    begun(request);
    while !load.has_ended() {
        if stop.load(Ordering::Relaxed) {
            load.end().map_err(|refusal| refusal.finding.to_string())?;
        }
        if begin.elapsed() > duration + TIMEOUT {
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
        request.load.word(),
        request.cpu
    ));
}

fn ended(request: &LoadRequest, time: Nanos) {
    print_line(&format!(
        "rampart-meter load: {} ended, CPU time {} ns",
        request.load.word(),
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
    fn parses_loads_of_cpu_memory_and_disk() {
        let request = parsed("cache --cpu 3 --seconds 12").expect("a load");
        assert_eq!((request.load, request.cpu), (LoadKind::Cache, CpuId(3)));
        assert_eq!(request.duration, Some(Duration::from_secs(12)));
        assert!(!request.wait);
        let request = parsed("memory --cpu 0 --bytes 4096 --wait").expect("a load");
        assert_eq!((request.bytes, request.wait), (Some(4096), true));
        assert_eq!(request.duration, None);
        let request = parsed("io --cpu 0 --directory /tmp").expect("a load");
        assert_eq!(request.directory.as_deref(), Some(Path::new("/tmp")));
        for wrong in [
            "io --cpu 0 --seconds 1",
            "cpu --cpu 0 --directory /tmp",
            "idle --cpu 0 --seconds 1",
            "cpu --cpu x --seconds 1",
            "cpu --cpu",
            "cpu --seconds 1",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn load_reports_the_time_of_its_cpu() {
        let cpu = scheduling::affinity().expect("ours").first().expect("one");
        let before = clock::thread_cpu();
        let line = format!("cache --cpu {cpu}");
        let request = LoadRequest {
            duration: Some(Duration::from_millis(50)),
            ..parsed(&line).expect("a load")
        };
        here(&request, &AtomicBool::new(false)).expect("it runs");
        assert!(clock::thread_cpu() > before);
        // Without a time a stop request ends it.
        let endless = parsed(&line).expect("a load");
        here(&endless, &AtomicBool::new(true)).expect("it runs");
    }

    #[test]
    fn io_leaves_no_file_and_reports_a_directory_that_it_cannot_use() {
        let cpu = scheduling::affinity().expect("ours").first().expect("one");
        let directory = std::env::temp_dir().join(format!("meter-io-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let request = LoadRequest {
            duration: Some(Duration::from_millis(50)),
            ..parsed(&format!(
                "io --cpu {cpu} --directory {}",
                directory.display()
            ))
            .expect("a load")
        };
        here(&request, &AtomicBool::new(false)).expect("it runs");
        std::fs::remove_dir(&directory).expect("an empty directory");
        let error = here(&request, &AtomicBool::new(false)).expect_err("no directory");
        assert!(error.contains("meter-io-"), "{error}");
    }
}
