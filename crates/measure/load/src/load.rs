// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts, watches and ends a load.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rampart_host::{OnParentExit, Shield, end_child, spawn_tied};
use rampart_model::{
    Condition, CpuId, CpuSet, Finding, LoadKind, LoadLocation, LoadRecord, Nanos, Severity,
    StressorRecord,
};
use rustix::process::Signal;

use crate::inside::has_begun;
use crate::load_program::LoadProgram;
use crate::proc::{self, Process};
use crate::share::{Beside, Share};
use crate::{LoadError, stressor};

/// Time limit for the workers of a load to use [`ENOUGH_TO_COUNT`]. They need milliseconds; on a
/// busy machine with an emulated disk they may need seconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// CPU time after which a worker counts as running.
const ENOUGH_TO_COUNT: Nanos = Nanos::from_millis(1);
/// Time limit for a load to remove its files before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of the end of a stressor's output that are kept.
const OUTPUT_KEPT: usize = 2048;

/// A shell that waits for a line before it executes the stressor, so that the process can be
/// admitted to a shield and bound to its CPU first.
const GATE: &str = r#"read -r go && exec "$0" "$@""#;

/// A running load. Dropping it ends it.
#[derive(Debug)]
pub struct Load {
    version: String,
    stressors: Vec<Stressor>,
    scratch: Option<PathBuf>,
}

#[derive(Debug)]
struct Stressor {
    cpu: CpuId,
    /// Whether the started process itself is the worker, and not its children.
    is_worker: bool,
    command: Vec<String>,
    child: Child,
    output: Arc<Mutex<VecDeque<u8>>>,
    /// The last affinity that was read.
    cpus: CpuSet,
    /// The last CPU time that was read.
    cpu_time: Nanos,
    /// The CPU time at the start of the present run.
    cpu_time_before: Nanos,
    /// The share of the CPU that its workers used in the present run; `None` before the first and if
    /// the load sleeps by itself.
    share: Option<Share>,
    failure: Option<String>,
    /// Whether the failure is that of the share, which may still grow.
    starved: bool,
}

/// The state of a stressor's processes.
enum Seen {
    /// Its workers run where they should and have used this much CPU time.
    Running(Nanos),
    /// Its workers use too little of their CPU.
    Starved { what: String },
    /// There is a problem.
    Problem { what: String },
}

impl Load {
    /// Starts the load of `condition` at its location, `measured` or `others`, inside the shields of
    /// these CPUs. Returns when each of its workers has used CPU time.
    ///
    /// All loads of an evaluation are those of one program: loads of different programs differ.
    /// Files are created below `scratch`, which should be on a disk.
    ///
    /// # Errors
    /// Returns an error if any part of it did not start; the other parts are ended.
    pub fn start(
        program: &LoadProgram,
        condition: Condition,
        measured: &CpuSet,
        others: &CpuSet,
        shields: &[&Shield],
        scratch: &Path,
    ) -> Result<Self, LoadError> {
        if condition.load == LoadKind::Idle {
            return Ok(Self {
                version: String::new(),
                stressors: Vec::new(),
                scratch: None,
            });
        }
        let cpus = match condition.location {
            Some(LoadLocation::Same) => measured,
            Some(LoadLocation::Others) | None => others,
        };
        if cpus.is_empty() {
            return Err(LoadError::NoLocation { condition });
        }
        let memory = match condition.load {
            LoadKind::Memory => {
                let available = proc::available_memory().unwrap_or(0);
                stressor::memory_each(condition, available, cpus.len())?
            }
            _ => 0,
        };
        let scratch = make_scratch(scratch)?;
        // From here on dropping `load` ends what was started.
        let mut load = Self {
            version: program.version(),
            stressors: Vec::new(),
            scratch: Some(scratch.clone()),
        };
        for cpu in cpus.iter() {
            let stressor = match program {
                LoadProgram::StressNg { path, .. } => {
                    let options = stressor::options(condition.load, cpu, &scratch, memory);
                    Stressor::start_behind_gate(path, options, cpu)?
                }
                LoadProgram::Meter { path, .. } => {
                    let bytes = match condition.load {
                        LoadKind::Cache => proc::last_level_cache(cpu),
                        LoadKind::Memory => Some(memory),
                        LoadKind::Idle | LoadKind::Cpu | LoadKind::Io => None,
                    };
                    let options = stressor::meter_options(condition.load, cpu, &scratch, bytes);
                    Stressor::start_meter(path, options, cpu)?
                }
            };
            load.stressors.push(stressor);
            if let Some(stressor) = load.stressors.last_mut() {
                let shield = shields
                    .iter()
                    .find(|shield| shield.report().cpus.contains(cpu));
                stressor.open_gate(condition, shield.copied())?;
            }
        }
        for stressor in &mut load.stressors {
            stressor.wait_until_it_runs()?;
            if condition.load != LoadKind::Io {
                stressor.begin_share(match condition.location {
                    Some(LoadLocation::Same) => Beside::Unknown,
                    Some(LoadLocation::Others) | None => Beside::Nothing,
                });
            }
        }
        Ok(load)
    }

    /// Begins another run under the same load: [`Load::record`] then reports this run alone.
    pub fn begin_run(&mut self) {
        for stressor in &mut self.stressors {
            stressor.observe();
            stressor.cpu_time_before = stressor.cpu_time;
            if let Some(beside) = stressor.share.as_ref().map(Share::beside) {
                stressor.begin_share(beside);
            }
        }
    }

    /// Names the threads that measure on the CPUs of a load at [`LoadLocation::Same`], for which alone it
    /// may wait, and begins to count its share of the CPUs again. Without them all waiting counts.
    pub fn share_with(&mut self, measuring: &[u32]) {
        for stressor in &mut self.stressors {
            let share = stressor.share.as_ref();
            if share.is_some_and(|share| !share.is_alone()) {
                stressor.begin_share(Beside::Measuring(measuring.to_vec()));
            }
        }
    }

    /// Checks whether all stressors still run. [`Load::record`] reports a failure too.
    ///
    /// # Errors
    /// Returns the stressor that has ended or does not run, and its output.
    pub fn alive(&mut self) -> Result<(), Box<Finding>> {
        for stressor in &mut self.stressors {
            stressor.observe();
            if let Some(failure) = &stressor.failure {
                let location = format!("load on CPU {}", stressor.cpu);
                return Err(Box::new(
                    Finding::new(Severity::Error, location, failure.clone())
                        .fix(stressor.command.join(" ")),
                ));
            }
        }
        Ok(())
    }

    /// Returns the record of the present run.
    #[must_use]
    pub fn record(&mut self) -> LoadRecord {
        for stressor in &mut self.stressors {
            stressor.observe();
        }
        let stressors: Vec<StressorRecord> = self
            .stressors
            .iter()
            .map(|stressor| StressorRecord {
                command: stressor.command.clone(),
                cpus: stressor.cpus.clone(),
                cpu_time: stressor.cpu_time.saturating_sub(stressor.cpu_time_before),
                failure: stressor.failure.clone(),
            })
            .collect();
        LoadRecord {
            version: self.version.clone(),
            ran: stressors.iter().all(|stressor| stressor.failure.is_none()),
            stressors,
        }
    }

    /// Ends the load and returns its record.
    #[must_use]
    pub fn stop(mut self) -> LoadRecord {
        let record = self.record();
        self.end();
        record
    }

    /// Ends all processes and removes the files. The second call does nothing.
    fn end(&mut self) {
        for stressor in &self.stressors {
            stressor.signal(Signal::TERM);
        }
        let begin = Instant::now();
        for stressor in &mut self.stressors {
            stressor.reap(END_TIMEOUT.saturating_sub(begin.elapsed()));
        }
        if let Some(scratch) = self.scratch.take() {
            // Remaining files are in the caller's scratch directory, which the caller removes.
            let _ = fs::remove_dir_all(scratch);
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

impl Stressor {
    /// Starts a program that waits at a gate and then starts workers.
    fn start_behind_gate(
        program: &Path,
        options: Vec<String>,
        cpu: CpuId,
    ) -> Result<Self, LoadError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GATE]).arg(program).args(&options);
        Self::start(command, program, options, cpu, false)
    }

    /// Starts the meter's own load, which waits for a line itself.
    fn start_meter(meter: &Path, options: Vec<String>, cpu: CpuId) -> Result<Self, LoadError> {
        let mut command = Command::new(meter);
        command.args(&options).arg("--wait");
        Self::start(command, meter, options, cpu, true)
    }

    fn start(
        mut command: Command,
        program: &Path,
        options: Vec<String>,
        cpu: CpuId,
        is_worker: bool,
    ) -> Result<Self, LoadError> {
        // Reports show its messages, which must not depend on the user's language.
        command.env("LC_ALL", "C");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = PathBuf::from(command.get_program());
        let mut child = spawn_tied(command, OnParentExit::Terminate)
            .map_err(LoadError::file("start the program", started))?;
        let output = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(pipe) = child.stdout.take() {
            keep_tail(pipe, &output);
        }
        if let Some(pipe) = child.stderr.take() {
            keep_tail(pipe, &output);
        }
        let mut line = vec![program.display().to_string()];
        line.extend(options);
        Ok(Self {
            cpu,
            is_worker,
            command: line,
            child,
            output,
            cpus: CpuSet::new(),
            cpu_time: Nanos::ZERO,
            cpu_time_before: Nanos::ZERO,
            share: None,
            failure: None,
            starved: false,
        })
    }

    /// Admits the waiting process to the shield, binds it, and opens the gate.
    fn open_gate(
        &mut self,
        condition: Condition,
        shield: Option<&Shield>,
    ) -> Result<(), LoadError> {
        let process = self.child.id();
        if let Some(shield) = shield {
            shield.admit(process)?;
        }
        proc::bind(process, self.cpu).map_err(|source| LoadError::NotBound {
            condition,
            cpu: self.cpu,
            source,
        })?;
        // On the measured CPUs it would compete with a meter of the ordinary policy.
        if condition.location != Some(LoadLocation::Same) {
            proc::prefer(process);
        }
        let opened = match self.child.stdin.as_mut() {
            Some(gate) => gate.write_all(b"go\n"),
            None => Ok(()),
        };
        if !self.is_worker {
            self.child.stdin = None;
        }
        // A later check detects a program that has ended.
        opened.or_else(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(LoadError::file("write to the input of", &self.command[0])(
                error,
            )),
        })
    }

    fn wait_until_it_runs(&mut self) -> Result<(), LoadError> {
        let begin = Instant::now();
        loop {
            let reason = match self.look() {
                // The meter first prepares its memory, and reports its begin.
                Seen::Running(used)
                    if used >= ENOUGH_TO_COUNT
                        && (!self.is_worker || has_begun(&self.output())) =>
                {
                    return Ok(());
                }
                Seen::Running(used) => format!(
                    "its workers have used {:.3} ms of CPU time within {} s, needed {:.0} ms; fix: see what else runs on CPU {}",
                    used.as_secs_f64() * 1e3,
                    START_TIMEOUT.as_secs(),
                    ENOUGH_TO_COUNT.as_secs_f64() * 1e3,
                    self.cpu,
                ),
                Seen::Problem { what } | Seen::Starved { what } => what,
            };
            // Missing workers may still start; an ended program does not.
            let ended = self.has_ended();
            if ended || begin.elapsed() >= START_TIMEOUT {
                let reason = match self.look() {
                    Seen::Problem { what } if ended => what,
                    _ => reason,
                };
                return Err(LoadError::DidNotRun {
                    command: self.command.join(" "),
                    reason,
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns its processes that make load.
    fn workers(&self) -> Vec<Process> {
        let leader = self.child.id();
        let mut all = proc::group(leader);
        all.retain(|process| self.is_worker || process.id != leader);
        all
    }

    /// Begins to count the share of the CPU that its workers use.
    fn begin_share(&mut self, beside: Beside) {
        self.look();
        let workers = self.workers();
        self.share = Some(Share::begin(self.cpu, beside, self.cpu_time, &workers));
    }

    /// Records the first problem. A share that was too small may have grown since.
    fn observe(&mut self) {
        if self.failure.is_some() && !self.starved {
            return;
        }
        let seen = self.look();
        self.starved = matches!(seen, Seen::Starved { .. });
        self.failure = match seen {
            Seen::Problem { what } | Seen::Starved { what } => Some(what),
            Seen::Running(_) => None,
        };
    }

    /// Reads the state of the processes: their CPU time and affinity, and whether any is missing.
    fn look(&mut self) -> Seen {
        if self.has_ended() {
            let what = self.how_it_ended();
            return Seen::Problem { what };
        }
        let leader = self.child.id();
        let all = proc::group(leader);
        // The time of reaped children is in their parent's time, so the sum shrinks at most by a
        // child that ends at this moment.
        let used = all.iter().map(|process| process.cpu_time).sum();
        self.cpu_time = self.cpu_time.max(used);
        let workers: Vec<Process> = all
            .into_iter()
            .filter(|process| self.is_worker || process.id != leader)
            .collect();
        if workers.is_empty() {
            let what = if self.has_ended() {
                self.how_it_ended()
            } else {
                format!("it has no workers, output: {}", self.output_text())
            };
            return Seen::Problem { what };
        }
        if let Some(worker) = workers.iter().find(|worker| worker.is_stopped()) {
            let what = format!(
                "its worker {} is stopped by a signal or a debugger",
                worker.id
            );
            return Seen::Problem { what };
        }
        let cpus: CpuSet = workers
            .iter()
            .filter_map(|worker| proc::affinity(worker.id))
            .fold(CpuSet::new(), |all, cpus| all.union(&cpus));
        if !cpus.is_empty() {
            self.cpus = cpus;
            if self.cpus != CpuSet::single(self.cpu) {
                let what = format!(
                    "its workers may run on CPU {}, needed CPU {} alone",
                    self.cpus, self.cpu
                );
                return Seen::Problem { what };
            }
        }
        if let Some(share) = &mut self.share {
            share.add(self.cpu_time, &workers);
            if let Some(what) = share.problem() {
                return Seen::Starved { what };
            }
        }
        Seen::Running(workers.iter().map(|worker| worker.cpu_time).sum())
    }

    fn how_it_ended(&mut self) -> String {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "it still runs".to_owned(),
            Err(error) => error.to_string(),
        };
        // Wait for the readers to receive the last output.
        thread::sleep(Duration::from_millis(20));
        format!("it has ended ({status}), output: {}", self.output_text())
    }

    /// Returns the end of the output.
    fn output(&self) -> String {
        let bytes: Vec<u8> = match self.output.lock() {
            Ok(output) => output.iter().copied().collect(),
            Err(_) => Vec::new(),
        };
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the end of the output on one line.
    fn output_text(&self) -> String {
        let text = self.output().trim().replace('\n', "; ");
        if text.is_empty() {
            "nothing".to_owned()
        } else {
            text
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = proc::pid(self.child.id()) {
            // Signal the whole group, so that a shell that waits at the gate ends too. A group that
            // has ended needs no signal.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }

    /// Waits for the end, and kills the process after `timeout`.
    fn reap(&mut self, timeout: Duration) {
        let begin = Instant::now();
        let leader = self.child.id();
        while begin.elapsed() < timeout {
            if self.has_ended() && proc::group(leader).is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.signal(Signal::KILL);
        end_child(&mut self.child);
    }
}

/// Creates a directory for this load only.
fn make_scratch(parent: &Path) -> Result<PathBuf, LoadError> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = parent.join(format!("load-{}-{count}", std::process::id()));
    fs::create_dir_all(&path).map_err(LoadError::file("create the directory", &path))?;
    // stress-ng changes its directory, so it needs an absolute path.
    fs::canonicalize(&path).map_err(LoadError::file("resolve the directory", path))
}

/// Keeps the end of an output.
fn keep_tail(mut output: impl Read + Send + 'static, kept: &Arc<Mutex<VecDeque<u8>>>) {
    let kept = Arc::clone(kept);
    thread::spawn(move || {
        let mut chunk = [0; 512];
        while let Ok(length) = output.read(&mut chunk) {
            if length == 0 {
                return;
            }
            let Ok(mut kept) = kept.lock() else { return };
            kept.extend(&chunk[..length]);
            let surplus = kept.len().saturating_sub(OUTPUT_KEPT);
            kept.drain(..surplus);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_counts_as_a_load_that_ran() {
        let program = LoadProgram::StressNg {
            path: PathBuf::from("/nowhere"),
            version: String::new(),
        };
        let mut load = Load::start(
            &program,
            Condition::IDLE,
            &CpuSet::single(CpuId(0)),
            &CpuSet::new(),
            &[],
            Path::new("/nowhere"),
        )
        .expect("idle");
        assert!(load.alive().is_ok());
        let record = load.stop();
        assert!(record.ran && record.stressors.is_empty() && record.version.is_empty());
    }

    #[test]
    fn a_program_that_ends_is_an_error() {
        // Without another process, which could have worked for long enough.
        let script = "read -r line </proc/$$/stat; echo broken $line >&2; exit 3";
        let options = vec!["-c".to_owned(), script.to_owned()];
        let mut stressor =
            Stressor::start_behind_gate(Path::new("/bin/sh"), options, CpuId(0)).expect("start");
        stressor.open_gate(Condition::IDLE, None).expect("go");
        let message = stressor
            .wait_until_it_runs()
            .expect_err("must fail")
            .to_string();
        assert!(message.contains("exit status: 3"), "{message}");
        assert!(message.contains("broken"), "{message}");
        // Ordinary programs do not keep a load from running.
        let privileged = rustix::process::geteuid().is_root();
        assert!(!privileged || message.contains(" -10 "), "{message}");
    }
}
