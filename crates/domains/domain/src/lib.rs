// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains: one module a kind. Start a meter inside, talk with it, observe, stop.
//!
//! A kind is one module that implements [`Domain`]; adding one touches no other. Whatever the
//! kind, the meter inside is the same program and the conversation with it the same
//! ([`rampart_model::MeterRequest`], [`rampart_model::MeterEvent`]).

mod active_domain;
mod agent_process;
mod cell;
mod container;
mod error;
mod host;
mod host_cpu_numbers;
mod kernel_modules;
mod meter_placement;
mod not_built;
mod process_settings;
mod running_process;
mod session;
mod shielded_process;
mod task;
mod vm;

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use rampart_host::{Shield, StateDirectory};
use rampart_model::{
    ActiveDomain, Availability, CellExitReport, CellPayload, ClockRelation, ContainerEngine, CpuId,
    CpuSet, DomainKind, DomainSelection, EffectiveSettings, GuestReport, GuestRole, Machine,
    MeterEvent, MeterSettings, ShieldReport, SignInMemory,
};

pub use cell::{ReleasedCells, batches_in_memory, release_cells};
pub use container::{ContainerOrder, PlannedContainer, ReleasedContainers, release_containers};
pub use error::DomainError;
pub use shielded_process::IsolationChoice;
pub use vm::{
    ExportedGuest, GuestEnd, GuestOrder, PlannedGuest, ReleasedGuests, VirtualCpuPlacement,
    export_libvirt, release_guests,
};

/// What fixes a meter that cannot be started.
const METER_MEND: &str =
    "build it with `make build`, or install it beside `rampart`, and make it executable";

/// Every domain that can be named, the weakest wall first.
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

/// What can run in a domain of this kind, if it is a cell.
fn payloads(kind: DomainKind) -> impl Iterator<Item = Option<CellPayload>> {
    let payloads: &[Option<CellPayload>] = match kind {
        DomainKind::Cell => &[Some(CellPayload::BareMetal), Some(CellPayload::Linux)],
        _ => &[None],
    };
    payloads.iter().copied()
}

/// The domain that a selection names, with its state in the standard place.
#[must_use]
pub fn domain(selection: DomainSelection) -> Box<dyn Domain> {
    domain_in(selection, &StateDirectory::standard())
}

/// The domain that a selection names; `state` holds what must be found again after a sudden
/// end.
#[must_use]
pub fn domain_in(selection: DomainSelection, state: &StateDirectory) -> Box<dyn Domain> {
    domain_with_isolation(selection, IsolationChoice::Usual, state)
}

/// The same behind a wall of choice; `host` has none whatever is chosen.
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
        DomainKind::Detached => Box::new(not_built::NotBuilt(selection.kind)),
    }
}

/// A domain of an applied plan as a place for a meter: inside its wall, which stays as it is. The
/// meter is a process of this machine, whatever the kind.
#[must_use]
pub fn active_domain(domain: &ActiveDomain) -> Box<dyn Domain> {
    Box::new(active_domain::DomainOfActivePlan(domain.clone()))
}

/// For each domain that can be named: whether this machine can host it, and if not, why and
/// what would change it. Changes nothing.
#[must_use]
pub fn availability(machine: &Machine) -> Vec<Availability> {
    all()
        .iter()
        .map(|domain| domain.availability(machine))
        .collect()
}

/// A kind of domain on this machine.
pub trait Domain: std::fmt::Debug {
    /// What it is.
    fn selection(&self) -> DomainSelection;

    /// Whether this machine can host it, and if not, why and what would change it. Changes
    /// nothing.
    fn availability(&self, machine: &Machine) -> Availability;

    /// Raises the wall, starts the meter inside, and brings it to the point where it waits for
    /// [`Running::go`], placed from outside where the plan says so.
    ///
    /// # Errors
    /// If anything of it fails; what was changed is restored before.
    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError>;
}

/// What a domain needs to start a meter.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The static meter program.
    pub meter: &'a Path,
    /// What to measure; its `cpus` are the domain's CPUs.
    pub plan: &'a MeterSettings,
    /// The CPUs that ordinary work keeps.
    pub housekeeping: &'a CpuSet,
    /// Name of the domain in its evaluation: several of one kind may be up at once.
    pub name: &'a str,
    /// What takes long to bring up (a guest) may stay up after [`Running::finish`] for the next
    /// start with the same CPUs, until the [`Domain`] is dropped: nobody else uses its CPUs.
    pub stay_up: bool,
}

/// A program started inside a domain that has a kernel of its own. Dropping it ends the program.
pub struct InsideProcess {
    /// Its standard input.
    pub input: Box<dyn Write + Send>,
    /// Its standard output.
    pub output: Box<dyn Read + Send>,
    /// What keeps it alive; dropping it ends the program.
    pub handle: Box<dyn Send>,
}

impl std::fmt::Debug for InsideProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsideProcess").finish_non_exhaustive()
    }
}

/// The inside of a domain that has a kernel of its own.
pub trait Inside {
    /// Starts a program there: `rampart-meter` or `stress-ng` with arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError>;

    /// Whether nothing but the meter is there, so that a load is the meter's own work.
    fn has_only_the_meter(&self) -> bool {
        false
    }

    /// The number that its kernel gives to the CPU which the host numbers `cpu`.
    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId>;

    /// Relates its clock to ours.
    ///
    /// # Errors
    /// If it does not answer.
    fn clock(&self) -> Result<ClockRelation, DomainError>;
}

/// A meter that was started in a domain.
pub trait Running: std::fmt::Debug {
    /// Lets it verify its placement and measure.
    ///
    /// # Errors
    /// If the program is gone.
    fn go(&mut self) -> Result<(), DomainError>;

    /// The next thing it says; none if it says nothing within `timeout`.
    ///
    /// # Errors
    /// If the program ended without its last word, or said something unintelligible.
    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError>;

    /// Asks it to end early; its remaining events still come.
    fn stop(&mut self);

    /// After its last word: brings the meter to the point where it waits for [`Running::go`] with
    /// another plan for the same CPUs, inside the same wall. False where it would not be placed as
    /// before; it is then to be finished and started anew.
    ///
    /// # Errors
    /// If the program is gone, refuses, or cannot be placed.
    fn rearm(&mut self, plan: &MeterSettings) -> Result<bool, DomainError>;

    /// The shield around it, through which a load gets onto its CPUs.
    fn shield(&self) -> Option<&Shield>;

    /// What it was granted, read back from the kernel.
    fn effective_settings(&self) -> EffectiveSettings;

    /// The wall as it stands, and what was found weak about it; none where there is none.
    fn isolation(&self) -> Option<ShieldReport>;

    /// Its inside, if it has a kernel of its own. The moments of its meter's events are then on
    /// that kernel's clock; their CPUs are numbered as the host numbers them all the same.
    fn inside(&self) -> Option<&dyn Inside> {
        None
    }

    /// The guest as it is now, if it is one.
    fn guest(&self) -> Option<GuestReport> {
        None
    }

    /// The cell as it was while it measured, if it is one.
    fn cell(&self) -> Option<CellExitReport> {
        None
    }

    /// Where in the machine's memory it writes down its last sample, if it does: whoever sees that
    /// memory from outside can tell whether it lives, whatever became of this kernel.
    fn sign_in_memory(&self) -> Option<SignInMemory> {
        None
    }

    /// Ends the program if it still runs, removes everything that [`Domain::start`] made and
    /// restores what it changed.
    ///
    /// # Errors
    /// If something could not be restored; it then stays in the journal for `rampart release`.
    fn finish(self: Box<Self>) -> Result<Option<ShieldReport>, DomainError>;
}
