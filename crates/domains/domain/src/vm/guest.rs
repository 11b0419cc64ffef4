// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running guest: its program, its agent, and the placement of its threads.

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError, INIT};
use rampart_host::StateDirectory;
use rampart_model::{ClockRelation, CpuId, Finding, GuestReport, Machine, Nanos, Severity};
use rampart_qemu::Qemu;
use rampart_rules::Package;
use rampart_rules::guest::{HostFacts, guest_finding};
use serde_json::json;

use super::boot_watch::{Limits, Look, Watch, kvm_runs_no_guest};
use super::description::Description;
use super::guest_directories::GuestDirectory;
use super::guest_settings;
use super::host_support::Program;
use super::initramfs::{self, Contents, LOAD};
use super::program_libraries::Libraries;
use super::qemu_arguments::{AGENT_SOCKET, arguments};
use super::thread_placement::GuestThreads;
use crate::agent_process;
use crate::kernel_modules::Module;
use crate::session::{MeterProcess, MeterStreams};
use crate::shielded_process::Environment;
use crate::{DomainError, Inside, InsideProcess, process_settings};

/// Exchanges to relate its clock; the fastest answer counts.
const CLOCK_EXCHANGES: u32 = 64;
/// Pause between two checks of a booting guest.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The parts of a guest besides its description.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) program: &'a Program,
    pub(super) meter: &'a Path,
    pub(super) modules: &'a [Module],
    pub(super) load: Option<&'a Libraries>,
    pub(super) machine: &'a Machine,
}

/// A guest. Dropping it ends it: first the connection to the agent, then the program, then its
/// files.
#[derive(Debug)]
pub(super) struct Guest {
    agent: Agent,
    qemu: Qemu,
    directory: GuestDirectory,
    pub(super) description: Description,
    placement: GuestThreads,
    version: String,
    boot_time: Nanos,
    has_load: bool,
    facts: HostFacts,
    limits: Limits,
    findings: Vec<Finding>,
    paused: bool,
}

impl Guest {
    /// Starts a guest that `describe` returns for the path of its initramfs. It stays paused until
    /// its threads are placed.
    pub(super) fn boot(
        state: &StateDirectory,
        parts: &Parts<'_>,
        environment: &mut Environment,
        describe: impl FnOnce(&Path) -> Description,
    ) -> Result<Self, DomainError> {
        let begin = Instant::now();
        let directory = GuestDirectory::create(state)?;
        let archive = directory.path().join("initramfs");
        let contents = Contents {
            meter: parts.meter,
            modules: parts.modules,
            load: parts.load,
        };
        initramfs::write(&archive, &contents)?;
        let description = describe(&archive);
        let qemu = Qemu::start(
            &parts.program.path,
            arguments(&description, directory.path()),
            directory.path(),
        )?;
        let mut placement = GuestThreads::ask(qemu.qmp(), qemu.process())?;
        placement.put(&description, environment)?;
        let stream = qemu.socket(AGENT_SOCKET)?;
        let limits = Limits::of(
            description.accelerator,
            parts.machine.virtualisation.emulated,
        );
        qemu.qmp().execute("cont", json!({}))?;
        let watch = Watch::new(limits, qemu.process(), placement.first());
        let agent = hello(&qemu, stream, watch, &description)?;
        let boot_time = begin.elapsed();
        let version = qemu_version(&qemu);
        let findings = agent
            .hello()
            .problems
            .iter()
            .map(|problem| {
                Finding::new(
                    Severity::Warning,
                    format!("guest {}", description.name),
                    format!("inside the guest: {problem}"),
                )
            })
            .collect();
        // The archive is loaded now, and a guest that restarts is ended.
        let _ = std::fs::remove_file(&archive);
        Ok(Self {
            agent,
            qemu,
            directory,
            placement,
            version,
            boot_time: Nanos(u64::try_from(boot_time.as_nanos()).unwrap_or(u64::MAX)),
            has_load: parts.load.is_some(),
            facts: guest_settings::read_host_facts(Path::new("/"), parts.machine),
            limits,
            findings,
            paused: false,
            description,
        })
    }

    /// Returns the id of the program's process.
    pub(super) fn process(&self) -> u32 {
        self.qemu.process()
    }

    /// Returns the program's version, for example `QEMU emulator version 7.2.22`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns a thread of a virtual CPU that measures.
    pub(super) fn measuring_thread(&self) -> u32 {
        self.placement.measuring()
    }

    /// Returns the threads of all virtual CPUs.
    pub(super) fn virtual_cpu_threads(&self) -> &[u32] {
        self.placement.virtual_cpus()
    }

    /// Adds weaknesses of the guest.
    pub(super) fn note(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
    }

    /// Pauses its CPUs, so that it uses none between two runs.
    pub(super) fn pause(&mut self) -> Result<(), DomainError> {
        self.qemu.qmp().execute("stop", json!({}))?;
        self.paused = true;
        self.placement.rest()
    }

    /// Returns whether its agent still answers, with a longer limit on an emulated machine.
    pub(super) fn answers(&self) -> bool {
        let until = Instant::now() + self.limits.hello / 8;
        loop {
            if self.agent.clock(1).is_ok() {
                return true;
            }
            if self.agent.lost().is_some() || Instant::now() >= until {
                return false;
            }
        }
    }

    /// Moves its threads into a new environment, resumes it, and checks that it answers.
    pub(super) fn resume(&mut self, environment: &mut Environment) -> Result<(), DomainError> {
        self.check()?;
        self.placement.put(&self.description, environment)?;
        if self.paused {
            self.qemu.qmp().execute("cont", json!({}))?;
            self.paused = false;
        }
        if self.answers() {
            Ok(())
        } else {
            Err(self.failure("the guest hangs: it was resumed and does not answer".to_owned()))
        }
    }

    /// Returns the time limit for its first message, and for later work of that size.
    pub(super) fn timeout(&self) -> Duration {
        self.limits.hello
    }

    /// Returns the CPU time of its virtual CPUs, as the host counts it.
    pub(super) fn cpu_time(&self) -> Nanos {
        self.placement.cpu_time()
    }

    /// Checks that it still runs, and places threads created since the last call.
    pub(super) fn tend(&mut self, environment: &Environment) -> Result<(), DomainError> {
        self.check()?;
        self.placement.put_new(&self.description, environment)?;
        Ok(())
    }

    fn check(&self) -> Result<(), DomainError> {
        let what = if let Some(status) = self.qemu.ended() {
            format!("the guest ended ({status})")
        } else if let Some(error) = self.agent.lost() {
            format!("the guest no longer answers: {error}")
        } else {
            return Ok(());
        };
        Err(self.failure(what))
    }

    fn failure(&self, what: String) -> DomainError {
        DomainError::Guest {
            guest: self.description.name.clone(),
            what,
            stderr: self.qemu.stderr_tail(),
            console: self.qemu.console_tail(12),
        }
    }

    /// Starts a program inside.
    pub(super) fn start(
        &self,
        command: &[String],
    ) -> Result<(MeterStreams, Box<dyn MeterProcess>), DomainError> {
        let mut argv = command.to_vec();
        match argv.first().map(String::as_str) {
            Some("rampart-meter") => INIT.clone_into(&mut argv[0]),
            Some("stress-ng") if !self.has_load => {
                return Err(DomainError::Unavailable(no_load_program()));
            }
            Some("stress-ng") => LOAD.clone_into(&mut argv[0]),
            _ => {}
        }
        let started = self.agent.spawn(&AgentCommand {
            // With `isolcpus=` everything else in the guest, and the agent itself, may run only on
            // the other CPUs.
            cpus: Some(self.agent.hello().cpus.clone()),
            ..AgentCommand::new(argv)
        });
        let started = started.map_err(|error| match self.check() {
            Ok(()) => error.into(),
            Err(better) => better,
        })?;
        Ok(agent_process::started(started))
    }

    /// Reports the present state of the guest.
    pub(super) fn report(&self, clock: Vec<ClockRelation>) -> GuestReport {
        let hello = self.agent.hello();
        let threads = self.placement.report();
        let locked = locked_bytes(self.process());
        let command: Vec<String> = self
            .qemu
            .command()
            .iter()
            .map(|word: &OsString| word.to_string_lossy().into_owned())
            .collect();
        let knobs = guest_settings::all(&guest_settings::Known {
            facts: &self.facts,
            guest: &self.description,
            command: &command,
            threads: &threads,
            locked,
            hello,
            firmware_interrupts: rampart_host::read_smi_count(),
        });
        let mut findings = self.findings.clone();
        findings.extend(knobs.iter().filter_map(guest_finding));
        GuestReport {
            accelerator: self.description.accelerator,
            program: self.version.clone(),
            command,
            kernel: format!("{} {}", hello.kernel_release, hello.kernel_version),
            kernel_command_line: hello.kernel_command_line.clone(),
            memory_bytes: self.description.memory.mebibytes << 20,
            page_bytes: self
                .description
                .memory
                .huge_page
                .unwrap_or(rustix::param::page_size() as u64),
            locked_bytes: locked,
            pinned: self.description.pinned(),
            threads,
            knobs,
            boot_time: self.boot_time,
            clock,
            findings,
        }
    }

    /// Ends it: the agent powers off the guest, and a program that remains is killed.
    pub(super) fn end(self) {
        let Self {
            agent,
            qemu,
            directory,
            ..
        } = self;
        drop(agent);
        qemu.end();
        drop(directory);
    }
}

/// Returns the version from QEMU's own answer, for example `QEMU 7.2.22`.
fn qemu_version(qemu: &Qemu) -> String {
    let answer = qemu.qmp().execute("query-version", json!({})).ok();
    let number = |name: &str| answer.as_ref()?.get("qemu")?.get(name)?.as_u64();
    match (number("major"), number("minor"), number("micro")) {
        (Some(major), Some(minor), Some(micro)) => format!("QEMU {major}.{minor}.{micro}"),
        _ => "QEMU".to_owned(),
    }
}

/// Waits for the agent's first message.
fn hello(
    qemu: &Qemu,
    stream: std::os::unix::net::UnixStream,
    mut watch: Watch,
    description: &Description,
) -> Result<Agent, DomainError> {
    let (sender, answer) = channel();
    let timeout = watch.timeout();
    thread::spawn(move || {
        // There is no receiver if the guest failed in another way.
        let _ = sender.send(Agent::connect(stream, timeout));
    });
    let mut lost: Option<AgentError> = None;
    loop {
        match answer.recv_timeout(LOOK_AGAIN) {
            Ok(Ok(agent)) => return Ok(agent),
            // QEMU is ending or hangs: the watch determines which.
            Ok(Err(error)) => lost = Some(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK_AGAIN),
        }
        if let Look::Failed(failure) = watch.look(qemu) {
            if failure.accelerator {
                return Err(DomainError::Unavailable(kvm_runs_no_guest(&failure)));
            }
            return Err(DomainError::Guest {
                guest: description.name.clone(),
                what: failure.what,
                stderr: failure.stderr,
                console: failure.console,
            });
        }
        if let Some(error) = lost.take_if(|_| watch.elapsed() > timeout / 4) {
            return Err(error.into());
        }
    }
}

fn no_load_program() -> Finding {
    Finding::new(
        Severity::Error,
        "stress-ng",
        "the guest has no load program, because the host has none",
    )
    .fix(crate::install_command(Package::StressNg))
}

/// `VmLck` of a process in bytes.
fn locked_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}

impl Inside for Guest {
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError> {
        let (streams, program) = self.start(command)?;
        Ok(agent_process::kept(streams, program))
    }

    fn has_only_the_meter(&self) -> bool {
        !self.has_load
    }

    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId> {
        let number = self
            .description
            .pinned()
            .iter()
            .position(|host| *host == Some(cpu))?;
        u32::try_from(number).ok().map(CpuId)
    }

    fn clock(&self) -> Result<ClockRelation, DomainError> {
        Ok(self.agent.clock(CLOCK_EXCHANGES)?)
    }
}

/// Maps a guest's CPU numbers to the host's. A CPU without one of its own on the host keeps its
/// number.
#[derive(Debug, Clone)]
pub(super) struct Numbering(Vec<Option<CpuId>>);

impl Numbering {
    pub(super) fn of(description: &Description) -> Self {
        Self(description.pinned())
    }

    pub(super) fn on_host(&self, inside: CpuId) -> CpuId {
        usize::try_from(inside.0)
            .ok()
            .and_then(|number| self.0.get(number).copied().flatten())
            .unwrap_or(inside)
    }
}

/// Returns the effective settings of a guest's program.
pub(super) fn effective_settings(guest: &Guest) -> rampart_model::EffectiveSettings {
    process_settings::effective_settings(
        guest.process(),
        guest.measuring_thread(),
        guest.version(),
        "itself",
    )
}
