// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains: each kind is one module that starts a meter inside, passes on its events, and stops it.
//!
//! Each kind implements [`Domain`]. The meter inside and its protocol are the same for every kind
//! ([`rampart_model::MeterRequest`], [`rampart_model::MeterEvent`]).

mod active_domain;
mod agent_process;
mod bare_meter;
mod cell;
mod container;
mod detached;
mod error;
mod host;
mod host_cpu_numbers;
mod kernel_modules;
mod meter_placement;
mod process_settings;
mod running_process;
mod session;
mod shielded_process;
mod task;
mod vm;

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use rampart_host::{MachineRoot, Shield, StateDirectory, read_operating_system};
use rampart_model::{
    ActiveDomain, Availability, CellExitReport, CellPayload, ClockRelation, ContainerEngine, CpuId,
    CpuSet, DetachedCounts, DomainKind, DomainSelection, EffectiveSettings, GuestReport, GuestRole,
    Machine, MeterEvent, MeterSettings, ShieldReport, SignInMemory,
};

use rampart_rules::Package;

pub use cell::{ReleasedCells, batches_in_memory, release_cells};
pub use container::{ContainerOrder, PlannedContainer, ReleasedContainers, release_containers};
pub use error::DomainError;
pub use shielded_process::IsolationChoice;
pub use vm::{
    ExportedGuest, GuestEnd, GuestOrder, PlannedGuest, ReleasedGuests, VirtualCpuPlacement,
    export_libvirt, release_guests,
};

/// Fix for a meter that cannot be started.
const METER_FIX: &str = "install `rampart-meter` beside `rampart`, and make it executable";

/// Returns every domain that can be named, from the weakest isolation to the strongest.
#[must_use]
pub fn all() -> Vec<Box<dyn Domain>> {
    let embedded = Some(ContainerEngine::Embedded);
    let mut selections = Vec::new();
    for kind in DomainKind::ALL {
        let engines = match kind {
            DomainKind::Container => vec![
                embedded,
                Some(ContainerEngine::Podman),
                Some(ContainerEngine::Docker),
            ],
            _ => vec![None],
        };
        let guests = match kind {
            DomainKind::Vm => vec![
                Some(GuestRole::RealTime),
                Some(GuestRole::Noisy),
                Some(GuestRole::Emulated),
            ],
            _ => vec![None],
        };
        for engine in engines {
            for guest in &guests {
                selections.extend(payloads(kind).map(|cell| DomainSelection {
                    kind,
                    engine,
                    guest: *guest,
                    cell,
                }));
            }
        }
    }
    selections.into_iter().map(domain).collect()
}

/// Returns the payloads of a cell, or one `None` for every other kind.
fn payloads(kind: DomainKind) -> impl Iterator<Item = Option<CellPayload>> {
    let payloads: &[Option<CellPayload>] = match kind {
        DomainKind::Cell => &[Some(CellPayload::BareMetal), Some(CellPayload::Linux)],
        _ => &[None],
    };
    payloads.iter().copied()
}

/// Returns the domain that a selection names, with its state in the standard directory.
#[must_use]
pub fn domain(selection: DomainSelection) -> Box<dyn Domain> {
    domain_in(selection, &StateDirectory::standard())
}

/// Returns the domain that a selection names; `state` holds the records needed to clean up after a
/// sudden end.
#[must_use]
pub fn domain_in(selection: DomainSelection, state: &StateDirectory) -> Box<dyn Domain> {
    domain_with_isolation(selection, IsolationChoice::Usual, state)
}

/// Returns the domain that a selection names, with this isolation; `host` has none in any case.
#[must_use]
pub fn domain_with_isolation(
    selection: DomainSelection,
    isolation: IsolationChoice,
    state: &StateDirectory,
) -> Box<dyn Domain> {
    let state = state.clone();
    match selection.kind {
        DomainKind::Host => Box::new(host::HostDomain),
        DomainKind::Task => Box::new(task::TaskDomain { state, isolation }),
        DomainKind::Container => Box::new(container::ContainerDomain {
            engine: selection.engine.unwrap_or(ContainerEngine::Embedded),
            state,
            isolation,
        }),
        DomainKind::Vm => Box::new(vm::VmDomain::new(
            selection.guest.unwrap_or(GuestRole::RealTime),
            state,
            isolation,
        )),
        DomainKind::Cell => Box::new(cell::CellDomain::new(
            selection.cell.unwrap_or(CellPayload::BareMetal),
            state,
        )),
        DomainKind::Detached => Box::new(detached::DetachedDomain { state }),
    }
}

/// Returns a domain of an applied plan to run a meter in, without changing its isolation. The meter
/// is a process of this machine, whatever the kind.
#[must_use]
pub fn active_domain(domain: &ActiveDomain) -> Box<dyn Domain> {
    Box::new(active_domain::DomainOfActivePlan(domain.clone()))
}

/// Returns whether this machine can host each domain that can be named, and if not, the reason and
/// the fix. Changes nothing.
#[must_use]
pub fn availability(machine: &Machine) -> Vec<Availability> {
    all()
        .iter()
        .map(|domain| domain.availability(machine))
        .collect()
}

/// Returns the command that installs a program with this machine's package manager.
pub(crate) fn install_command(package: Package) -> String {
    rampart_rules::install(&read_operating_system(&MachineRoot::system()), package)
}

/// A kind of domain on this machine.
pub trait Domain: std::fmt::Debug {
    /// Returns the domain's kind and variant.
    fn selection(&self) -> DomainSelection;

    /// Returns whether this machine can host it, and if not, the reason and the fix. Changes
    /// nothing.
    fn availability(&self, machine: &Machine) -> Availability;

    /// Applies the isolation, starts the meter inside and prepares it, so that it waits for
    /// [`Running::go`].
    ///
    /// # Errors
    /// If a step fails; earlier changes are restored first.
    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError>;
}

/// What a domain needs to start a meter.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The statically linked meter.
    pub meter: &'a Path,
    /// The settings of the measurement; `cpus` are the domain's CPUs.
    pub settings: &'a MeterSettings,
    /// The housekeeping CPUs.
    pub housekeeping: &'a CpuSet,
    /// The domain's name in its evaluation: several of one kind may be up at once.
    pub name: &'a str,
    /// Whether a guest or cell may stay up after [`Running::finish`] for the next start with the
    /// same CPUs, until the [`Domain`] is dropped. Nothing else uses its CPUs meanwhile.
    pub stay_up: bool,
}

/// A program started inside a domain that has a kernel of its own. Dropping it ends the program.
pub struct InsideProcess {
    /// Its standard input.
    pub input: Box<dyn Write + Send>,
    /// Its standard output.
    pub output: Box<dyn Read + Send>,
    /// Keeps the program alive; dropping it ends the program.
    pub handle: Box<dyn Send>,
}

impl std::fmt::Debug for InsideProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsideProcess").finish_non_exhaustive()
    }
}

/// A domain's own kernel, in which programs can be started.
pub trait Inside {
    /// Starts `rampart-meter` or `stress-ng` with arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError>;

    /// Returns whether the domain contains only the meter, which then has to make loads itself.
    fn has_only_the_meter(&self) -> bool {
        false
    }

    /// Returns the number that this kernel gives to the host's CPU `cpu`.
    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId>;

    /// Relates this kernel's clock to the host's.
    ///
    /// # Errors
    /// If the domain does not answer.
    fn clock(&self) -> Result<ClockRelation, DomainError>;
}

/// A meter that was started in a domain.
pub trait Running: std::fmt::Debug {
    /// Lets the meter verify its placement and measure.
    ///
    /// # Errors
    /// If the program has ended.
    fn go(&mut self) -> Result<(), DomainError>;

    /// Returns the next event, or `None` if none arrives within `timeout`.
    ///
    /// # Errors
    /// If the program ended before its last event, or printed an invalid line.
    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError>;

    /// Asks the meter to end early; its remaining events still arrive.
    fn stop(&mut self);

    /// Prepares the meter for another measurement on the same CPUs after its last event. Returns
    /// `false` if its placement would differ; finish it and start it again then.
    ///
    /// # Errors
    /// If the program has ended, refuses, or cannot be placed.
    fn rearm(&mut self, settings: &MeterSettings) -> Result<bool, DomainError>;

    /// Returns the shield around the meter, through which a load gets onto its CPUs.
    fn shield(&self) -> Option<&Shield>;

    /// Returns its effective settings, read back from the kernel.
    fn effective_settings(&self) -> EffectiveSettings;

    /// Returns the threads of this machine's kernel that measure, or that run the virtual CPUs of a
    /// guest that measures. Empty for a domain whose CPUs this kernel does not have.
    fn measuring_threads(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the isolation in effect with its weaknesses, or `None` if there is none.
    fn isolation(&self) -> Option<ShieldReport>;

    /// Returns the domain's own kernel, if it has one. Event times are then on that kernel's clock;
    /// CPUs are numbered as on the host in any case.
    fn inside(&self) -> Option<&dyn Inside> {
        None
    }

    /// Returns the present state of the guest, if the domain is one.
    fn guest(&self) -> Option<GuestReport> {
        None
    }

    /// Returns the state of the cell during the measurement, if the domain is one.
    fn cell(&self) -> Option<CellExitReport> {
        None
    }

    /// Returns what happened on the CPU during the measurement, if it was taken for a detached thread.
    fn detached(&self) -> Option<DetachedCounts> {
        None
    }

    /// Returns the physical memory that holds the meter's last sample, if there is any. It shows
    /// whether the meter is alive even after a crash of this kernel.
    fn sign_in_memory(&self) -> Option<SignInMemory> {
        None
    }

    /// Ends the program if it still runs, removes everything that [`Domain::start`] created and
    /// restores what it changed.
    ///
    /// # Errors
    /// If a change could not be restored; it stays in the journal for `rampart release`.
    fn finish(self: Box<Self>) -> Result<Option<ShieldReport>, DomainError>;
}
