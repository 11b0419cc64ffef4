// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `detached`: one thread of a Linux process on a CPU that is taken from Linux. The process runs the
//! loops of a cell without an operating system; `rampart-meter cell` speaks for it.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rampart_host::{
    MachineRoot, OnParentExit, Shield, StateDirectory, forget_cpu, read_detach_driver,
    read_detached_cpus, spawn_tied, take_cpu,
};
use rampart_meter::cell::memory::{ORDERS_BYTES, OUTPUT_BYTES};
use rampart_model::{
    Availability, ClockRelation, CpuId, CpuSet, DetachedCounts, DetachedState, DomainKind,
    DomainSelection, EffectiveSettings, Finding, Machine, MeterEvent, MeterSettings, PlacedBy,
    SchedulingPolicy, Severity, ShieldReport, SignInMemory,
};
use rampart_ring::mapping::SharedMapping;
use rampart_rules::detach_problems;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::bare_meter::{Ended, Proxies, sign_in_memory, translated_clock};
use crate::session::Session;
use crate::{Domain, DomainError, Inside, InsideProcess, METER_FIX, Running, Start};

/// The environment variable by which the library of detached threads finds its CPU; the descriptor is the standard
/// input.
const PASSED: &str = "RAMPART_DETACHED";

/// A thread on a CPU that is taken from Linux.
#[derive(Debug, Clone)]
pub(crate) struct DetachedDomain {
    pub(crate) state: StateDirectory,
}

impl Domain for DetachedDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection::of(DomainKind::Detached)
    }

    fn availability(&self, machine: &Machine) -> Availability {
        let root = MachineRoot::system();
        let findings = detach_problems(machine, read_detach_driver(&root));
        Availability {
            domain: self.selection(),
            available: findings.is_empty(),
            description: "one thread of a Linux process on a CPU that is taken from Linux"
                .to_owned(),
            findings,
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        let mut cpus = start.settings.cpus.iter();
        let (Some(cpu), None) = (cpus.next(), cpus.next()) else {
            return Err(DomainError::Unavailable(
                Finding::new(Severity::Error, start.name, "a detached thread has one CPU")
                    .values(start.settings.cpus.named().to_string(), "one CPU"),
            ));
        };
        let file = memory()?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let output = SharedMapping::new(&file, 0, OUTPUT_BYTES, false)
            .map_err(DomainError::file("map", &path))?;
        let proxies = Proxies {
            meter: start.meter.to_owned(),
            file: path.into(),
            locations: (0, OUTPUT_BYTES as u64),
            name: format!("the detached thread on CPU {cpu}"),
        };
        let taken = TakenCpu {
            state: self.state.clone(),
            cpu,
        };
        let mut command = proxies.command(&["detached"], &[]);
        command
            .env(PASSED, format!("{cpu}:0"))
            .stdin(Stdio::from(take_cpu(&self.state, cpu)?))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child =
            spawn_tied(command, OnParentExit::Kill).map_err(|source| DomainError::NotStarted {
                program: start.meter.display().to_string(),
                source,
                fix: METER_FIX.to_owned(),
            })?;
        let mut running = RunningThread {
            session: proxies.session()?,
            thread: Thread {
                program: Ended(child),
                taken,
                proxies,
                output,
                _file: file,
            },
            housekeeping: start.housekeeping.clone(),
            counts: (DetachedCounts::default(), None),
        };
        running.prepare(start.settings)?;
        Ok(Box::new(running))
    }
}

/// Returns a file in memory for both regions that the thread shares with its proxies.
fn memory() -> Result<File, DomainError> {
    let made = memfd_create(c"rampart-detached", MemfdFlags::CLOEXEC).map_err(Into::into);
    let made = made.map(File::from).and_then(|file| {
        file.set_len((OUTPUT_BYTES + ORDERS_BYTES) as u64)?;
        Ok(file)
    });
    made.map_err(DomainError::file("make", "memfd:rampart-detached"))
}

/// A CPU that [`take_cpu`] took and that no process here holds any more. Dropping it removes its journal.
#[derive(Debug)]
struct TakenCpu {
    state: StateDirectory,
    cpu: CpuId,
}

impl TakenCpu {
    /// Returns what happened on it since it was taken, and whether a thread runs on it.
    fn counts(&self) -> Option<(DetachedCounts, bool)> {
        let mut all = read_detached_cpus(&MachineRoot::system()).into_iter();
        let found = all.find(|taken| taken.cpu == self.cpu)?;
        Some((found.counts?, found.state == DetachedState::Running))
    }
}

impl Drop for TakenCpu {
    fn drop(&mut self) {
        // `rampart release` discards what is left, because this process no longer has the CPU.
        let _ = forget_cpu(&self.state, self.cpu);
    }
}

/// The measuring program. It is ended before its memory and the journal are removed.
#[derive(Debug)]
struct Thread {
    program: Ended,
    taken: TakenCpu,
    proxies: Proxies,
    output: SharedMapping,
    _file: File,
}

/// A meter on a taken CPU; the proxy is dropped before the thread.
#[derive(Debug)]
struct RunningThread {
    session: Session,
    thread: Thread,
    housekeeping: CpuSet,
    /// Before the measurement, and during it.
    counts: (DetachedCounts, Option<DetachedCounts>),
}

impl RunningThread {
    fn prepare(&mut self, settings: &MeterSettings) -> Result<(), DomainError> {
        let inside = MeterSettings {
            placed_by: PlacedBy::Itself,
            housekeeping: self.housekeeping.difference(&settings.cpus),
            // No thread that Linux schedules measures.
            policy: SchedulingPolicy::Other,
            ..settings.clone()
        };
        let prepared = self.session.prepare(&inside);
        self.best_error(prepared).map(drop)
    }

    /// Returns the error of the measuring program instead of that of its proxy, if it has ended.
    fn best_error<T>(&mut self, result: Result<T, DomainError>) -> Result<T, DomainError> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let program = &mut self.thread.program.0;
        let Ok(Some(status)) = program.try_wait() else {
            return Err(error);
        };
        let mut stderr = String::new();
        if let Some(pipe) = &mut program.stderr {
            let _ = pipe.read_to_string(&mut stderr);
        }
        Err(DomainError::Ended {
            program: self.thread.proxies.name.clone(),
            process: program.id(),
            status: status.to_string(),
            stderr,
        })
    }

    /// Takes the counts of the measurement that has ended.
    fn end(&mut self) -> Result<(), DomainError> {
        match self.thread.taken.counts() {
            Some((counts, true)) => {
                self.counts.1 = Some(counts.since(self.counts.0));
                Ok(())
            }
            _ => Err(DomainError::Unavailable(
                Finding::new(
                    Severity::Error,
                    self.thread.proxies.name.as_str(),
                    "Linux had the thread again before the measurement ended",
                )
                .fix("end what sends it signals or debugs it, and measure again"),
            )),
        }
    }
}

impl Running for RunningThread {
    fn go(&mut self) -> Result<(), DomainError> {
        let counts = self.thread.taken.counts();
        self.counts = (counts.map(|(counts, _)| counts).unwrap_or_default(), None);
        let gone = self.session.go();
        self.best_error(gone)
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        let event = self.session.next_event(timeout);
        let event = self.best_error(event)?;
        if matches!(event, Some(MeterEvent::Finished { .. })) {
            self.end()?;
        }
        Ok(event)
    }

    fn stop(&mut self) {
        self.session.stop();
    }

    fn rearm(&mut self, settings: &MeterSettings) -> Result<bool, DomainError> {
        self.prepare(settings)?;
        Ok(true)
    }

    /// No load can be placed on its CPU from outside.
    fn shield(&self) -> Option<&Shield> {
        None
    }

    fn effective_settings(&self) -> EffectiveSettings {
        EffectiveSettings {
            runtime: "rampart-meter detached".to_owned(),
            placed_by: "the driver of detached threads".to_owned(),
            ..EffectiveSettings::default()
        }
    }

    fn isolation(&self) -> Option<ShieldReport> {
        None
    }

    fn inside(&self) -> Option<&dyn Inside> {
        Some(&self.thread)
    }

    fn detached(&self) -> Option<DetachedCounts> {
        self.counts.1
    }

    fn sign_in_memory(&self) -> Option<SignInMemory> {
        let words = self.thread.output.words();
        // A page has an address once it was read here.
        words[0].load(Ordering::Relaxed);
        sign_in_memory(words, physical_address(words.as_ptr() as u64)?)
    }

    fn finish(mut self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        self.session.close();
        Ok(None)
    }
}

impl Inside for Thread {
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError> {
        self.proxies.spawn(command)
    }

    fn has_only_the_meter(&self) -> bool {
        true
    }

    /// Linux and the thread use the same numbers.
    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId> {
        (cpu == self.taken.cpu).then_some(cpu)
    }

    fn clock(&self) -> Result<ClockRelation, DomainError> {
        Ok(translated_clock())
    }
}

/// Returns the physical address of a page of this process that is in memory
/// (Documentation/admin-guide/mm/pagemap.rst). `None` without the privilege to know it.
fn physical_address(address: u64) -> Option<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let page = rustix::param::page_size() as u64;
    let map = File::open("/proc/self/pagemap").ok()?;
    let mut entry = [0; 8];
    map.read_exact_at(&mut entry, address / page * 8).ok()?;
    let entry = u64::from_ne_bytes(entry);
    (entry & PRESENT != 0 && entry & FRAME != 0).then(|| (entry & FRAME) * page + address % page)
}
