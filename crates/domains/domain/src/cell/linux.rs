// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell with Linux, whose only program is the meter as guest agent.

use std::io::Read as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, INIT};
use rampart_cells::linux::{
    CONSOLE_BYTES, FROM_ROOT_BYTES, LinuxCell, LinuxOrder, TO_ROOT_BYTES, initramfs,
};
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, CpuSelection, Payload, RegionWriter, SharedRequest};
use rampart_host::StateDirectory;
use rampart_model::{
    CellPayload, ClockRelation, CpuId, CpuSet, Finding, Nanos, Severity, SignForm, SignInMemory,
};

use super::availability;
use super::cell_records::CellFile;
use super::launched_cell::Launched;
use crate::kernel_modules::{self, Module, ModuleTree};
use crate::session::{MeterProcess, MeterStreams, Session};
use crate::{DomainError, Inside, InsideProcess, Start, agent_process};

/// Memory of a cell with Linux in bytes, for its kernel and the meter.
pub(super) const MEMORY_BYTES: u64 = 128 << 20;
/// Time limit for its boot until the agent answers; emulated machines take half a minute.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// Exchanges to relate its clock; the fastest answer counts.
const CLOCK_EXCHANGES: u32 = 64;
/// Time limit for a program inside to print the kernel's counters.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of its kernel. It has one CPU, or the second one is only for the meter.
const ARGUMENTS: &str = "quiet";

/// A Linux in a cell. Dropping it destroys the cell.
#[derive(Debug)]
pub(super) struct LinuxInside {
    agent: Agent,
    /// Read once, because each reading is work on its CPUs.
    sign: OnceLock<Option<SignInMemory>>,
    /// Destroys the cell when dropped; declared before `launched`, whose record outlives the cell.
    cell: LinuxCell,
    pub(super) launched: Launched,
}

/// Creates and boots a cell with Linux.
pub(super) fn boot(state: &StateDirectory, start: &Start<'_>) -> Result<LinuxInside, DomainError> {
    let unavailable = |finding: Box<Finding>| DomainError::Unavailable(*finding);
    let kernel = availability::kernel().map_err(unavailable)?;
    let image = std::fs::read(&kernel).map_err(DomainError::file("read", &kernel))?;
    let meter = std::fs::read(start.meter).map_err(DomainError::file("read", start.meter))?;
    let modules = kernel_modules::files(&block_modules(&kernel, start.meter).map_err(unavailable)?);
    let files: Vec<_> = modules
        .iter()
        .map(|(path, bytes)| (path.as_str(), 0o644, bytes.as_slice()))
        .collect();
    let initramfs = initramfs(&meter, &files).map_err(DomainError::file("pack", start.meter))?;
    let file = CellFile::create(state, start.name, &availability::order())?;
    let operator = Operator::open()?;
    let own = |bytes, writer| SharedRequest::Own {
        name: None,
        bytes,
        writer,
    };
    let request = CellRequest {
        payload: Payload::Linux,
        cpus: CpuSelection::List(start.settings.cpus.clone()),
        memory_bytes: MEMORY_BYTES,
        shared: vec![
            own(CONSOLE_BYTES, RegionWriter::Cell),
            own(TO_ROOT_BYTES, RegionWriter::Cell),
            own(FROM_ROOT_BYTES, RegionWriter::Root),
        ],
        ..CellRequest::new(file.name())
    };
    let resolved = operator.resolved(&request, start.housekeeping)?;
    let cell = LinuxCell::boot(LinuxOrder {
        configuration: resolved.configuration.clone(),
        image,
        initramfs,
        arguments: ARGUMENTS.to_owned(),
        nodes: resolved.nodes.clone(),
        names: resolved.names.clone(),
        functions: resolved.functions.clone(),
    });
    let linux = |error: rampart_cells::linux::LinuxError| DomainError::Cell {
        cell: file.name().to_owned(),
        what: error.to_string(),
    };
    let cell = cell.map_err(linux)?;
    let agent = cell.agent(BOOT_TIMEOUT).map_err(linux)?;
    let program = format!(
        "{}, Linux {}",
        kernel.display(),
        agent.hello().kernel_release
    );
    let mut launched = Launched::new(operator, file, &resolved, (CellPayload::Linux, program));
    if start.settings.cpus.len() == 1 {
        launched.note(one_cpu(start.name));
    }
    Ok(LinuxInside {
        agent,
        sign: OnceLock::new(),
        cell,
        launched,
    })
}

/// Returns the module that injects blocks, if there is one for a kernel image named
/// `vmlinuz-RELEASE` or `RELEASE/vmlinuz`, from `lib/modules/RELEASE` beside its directory or on
/// this machine.
fn block_modules(image: &Path, meter: &Path) -> Result<Vec<Module>, Box<Finding>> {
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let release = match name(image).unwrap_or_default().strip_prefix("vmlinuz-") {
        Some(release) => Some(release.to_owned()),
        None => image.parent().and_then(name),
    };
    let Some(release) = release.filter(|release| !release.is_empty()) else {
        return Ok(Vec::new());
    };
    let here = Path::new("/lib/modules").join(&release);
    let beside = image.parent().and_then(Path::parent);
    let beside = beside.map(|root| root.join("lib/modules").join(&release));
    let tree = beside.filter(|tree| tree.is_dir()).unwrap_or(here);
    kernel_modules::of_blocks(&ModuleTree::open(&tree), &release, meter)
}

fn one_cpu(cell: &str) -> Finding {
    Finding::new(
        Severity::Note,
        cell,
        "its kernel has one CPU, so the kernel's other work runs on the measured CPU",
    )
    .values("1 CPU", "2 CPUs or more")
    .fix("leave more CPUs for each domain: fewer --domains, or more --cpus")
}

impl LinuxInside {
    fn start(
        &self,
        command: &[String],
    ) -> Result<(MeterStreams, Box<dyn MeterProcess>), DomainError> {
        let mut argv = command.to_vec();
        match argv.first().map(String::as_str) {
            Some("rampart-meter") => INIT.clone_into(&mut argv[0]),
            Some(other) => {
                return Err(DomainError::Unavailable(
                    Finding::new(
                        Severity::Note,
                        self.launched.name(),
                        "a cell with Linux contains only the meter",
                    )
                    .values(other, "rampart-meter"),
                ));
            }
            None => {}
        }
        let command = AgentCommand {
            cpus: Some(self.agent.hello().cpus.clone()),
            ..AgentCommand::new(argv)
        };
        let started = self.agent.spawn(&command);
        let started = started.map_err(|error| self.launched.best_error(error.into()))?;
        Ok(agent_process::started(started))
    }

    /// Starts a session with the meter.
    pub(super) fn session(&self) -> Result<Session, DomainError> {
        let (streams, program) = self.start(&["rampart-meter".to_owned()])?;
        let name = format!("rampart-meter in the cell {}", self.launched.name());
        Ok(Session::over(&name, streams, program))
    }

    /// Returns the difference between the host's `CLOCK_REALTIME` and the cell's `CLOCK_MONOTONIC`:
    /// a cell has no clock for the time of day.
    pub(super) fn realtime_offset(&self) -> Option<Nanos> {
        let relation = self.agent.clock(1).ok()?;
        let now = |clock| {
            let now = rustix::time::clock_gettime(clock);
            i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
        };
        let host = now(rustix::time::ClockId::Realtime) - now(rustix::time::ClockId::Monotonic);
        let there = host - i128::from(relation.offset.0);
        u64::try_from(there).ok().map(Nanos)
    }

    /// Returns the region in which its agent writes, and the offset of its clock to the host's.
    pub(super) fn sign_in_memory(&self) -> Option<SignInMemory> {
        let region = self.cell.regions().to_root;
        *self.sign.get_or_init(|| {
            let relation = self.agent.clock(CLOCK_EXCHANGES).ok()?;
            Some(SignInMemory {
                address: region.start,
                bytes: region.bytes,
                form: SignForm::Agent,
                offset: relation.offset,
            })
        })
    }

    /// Returns the number of interrupts that its kernel has counted in `/proc/interrupts`.
    pub(super) fn interrupts(&self) -> Option<u64> {
        let command = AgentCommand::new([INIT, "show", "/proc/interrupts"].map(str::to_owned));
        let mut started = self.agent.spawn(&command).ok()?;
        let mut text = String::new();
        let begin = Instant::now();
        drop(started.stdin);
        started.stdout.read_to_string(&mut text).ok()?;
        (begin.elapsed() < LIST_TIMEOUT).then(|| counted(&text))
    }
}

/// Adds up all counts of `/proc/interrupts`; its first line names the CPUs.
fn counted(text: &str) -> u64 {
    let mut lines = text.lines();
    let cpus = lines
        .next()
        .map_or(0, |line| line.split_whitespace().count());
    lines
        .filter_map(|line| line.split_once(':'))
        .flat_map(|(_, rest)| rest.split_whitespace().take(cpus))
        .filter_map(|count| count.parse::<u64>().ok())
        .sum()
}

impl Inside for LinuxInside {
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError> {
        let (streams, program) = self.start(command)?;
        Ok(agent_process::kept(streams, program))
    }

    fn has_only_the_meter(&self) -> bool {
        true
    }

    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId> {
        let number = self.launched.cpus().iter().position(|own| own == cpu)?;
        u32::try_from(number).ok().map(CpuId)
    }

    fn clock(&self) -> Result<ClockRelation, DomainError> {
        Ok(self.agent.clock(CLOCK_EXCHANGES)?)
    }
}

/// Returns the host's number of one of the cell's CPUs.
pub(super) fn on_host(cpus: &CpuSet, inside: CpuId) -> CpuId {
    usize::try_from(inside.0)
        .ok()
        .and_then(|number| cpus.iter().nth(number))
        .unwrap_or(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_interrupts_of_all_cpus() {
        let text = "           CPU0       CPU1\n \
                    11:       4096        12     GICv3  27 Level     arch_timer\n \
                    12:          1          0     GICv3  33 Level     uart-pl011\n\
                    IPI0:         5          7       Rescheduling interrupts\n\
                    Err:          0\n";
        assert_eq!(counted(text), 4096 + 12 + 1 + 5 + 7);
        assert_eq!(counted(""), 0);
    }

    #[test]
    fn numbers_the_cells_cpus_by_the_hosts_order() {
        let cpus: CpuSet = "2-3".parse().expect("CPUs");
        assert_eq!(on_host(&cpus, CpuId(0)), CpuId(2));
        assert_eq!(on_host(&cpus, CpuId(1)), CpuId(3));
        assert_eq!(on_host(&cpus, CpuId(9)), CpuId(9));
    }
}
