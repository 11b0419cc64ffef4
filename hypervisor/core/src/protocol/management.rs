// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of the root that changes a cell. The caller holds the managers' lock during each step, and between
//! them except where [`Progress::Later`] is returned.

use super::{CpuState, World};
use crate::interface::{CellState, CpuPower, Outcome, ROOT};
use crate::state::Event;

/// The calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Takes the resources of a new cell from the root, and wipes them.
    Create,
    /// Parks the CPUs and maps the loadable memory for the root.
    Loadable,
    /// Unmaps the loadable memory and starts the first CPU.
    Start,
    /// Parks the CPUs.
    Stop,
    /// Wipes the cell and returns its resources to the root.
    Destroy,
    /// Orders the CPUs of a cell that has ended to park, and does not wait for them.
    Park,
    /// Parks the CPUs of the root, except the caller, and gives the root the memory of a standby that is kept (a cell
    /// without CPUs), with which the caller starts it again.
    Restart,
}

/// The work left to do for a cell before it can be used, also if a call was abandoned. The position is that of
/// [`World::wipe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// None.
    Ready,
    /// Its CPUs and memory are being taken from the root.
    Claiming,
    /// Its memory, which no CPU can access, is being wiped for the cell.
    Building(u64),
    /// Its private memory is being wiped, because the cell has run and the root is to load it again.
    Clearing(u64),
    /// Its memory, which no CPU can access, is being wiped for the root.
    Releasing(u64),
    /// Everything is being returned to the root.
    Returning,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Checks and changes the state of the cell.
    Begin,
    /// Takes this CPU from the root.
    Claim(usize),
    /// Takes memory and interrupts from the root.
    Take,
    /// Zeroes the memory.
    Wipe,
    /// Maps the memory for the cell.
    Grant,
    /// Orders this CPU to park.
    Order(usize),
    /// Waits until this CPU is off.
    Await(usize),
    /// All CPUs were found off, one after the other.
    Parked,
    /// Starts the first CPU, in three steps.
    Start,
    /// Claims the first CPU.
    TurnOn,
    /// Lets it start.
    Ready,
    /// Unmaps the memory from the cell.
    Withdraw,
    /// Returns memory and interrupts to the root.
    GiveBack,
    /// Returns this CPU to the root.
    ReturnCpu(usize),
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The next step can follow at once.
    Next,
    /// Waits for this CPU to park.
    Wait(usize),
    /// The lock is released, and the caller's interrupts are taken, before the next step.
    Later,
    /// The call is complete.
    Done(Result<(), Outcome>),
}

/// A call in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Management {
    /// The call.
    pub kind: Kind,
    /// The cell.
    pub cell: u32,
    /// The next step.
    pub phase: Phase,
    /// The error with which a creation that is undone ends.
    failed: Option<Outcome>,
    /// The CPU that starts the root again.
    caller: Option<usize>,
}

const DONE: Progress = Progress::Done(Ok(()));

impl Management {
    /// Begins a call for a cell, or continues one that returned [`Progress::Later`].
    pub const fn new(kind: Kind, cell: u32) -> Self {
        Self { kind, cell, phase: Phase::Begin, failed: None, caller: None }
    }

    /// Begins to start the root again, on CPU `caller` and from a standby.
    pub const fn restart(standby: u32, caller: usize) -> Self {
        Self { caller: Some(caller), ..Self::new(Kind::Restart, standby) }
    }

    /// Returns the cell whose CPUs are parked.
    const fn parks(&self) -> u32 {
        if self.caller.is_some() { ROOT } else { self.cell }
    }

    /// Makes the next step.
    pub fn step(&mut self, world: &mut impl World) -> Progress {
        self.try_step(world).unwrap_or_else(|outcome| Progress::Done(Err(outcome)))
    }

    fn go(&mut self, phase: Phase) -> Result<Progress, Outcome> {
        self.phase = phase;
        Ok(Progress::Next)
    }

    fn try_step(&mut self, world: &mut impl World) -> Result<Progress, Outcome> {
        let cell = self.cell;
        match self.phase {
            Phase::Begin => self.begin(world),
            Phase::Claim(cpu) if cpu == world.cpu_count() => self.go(Phase::Take),
            Phase::Claim(cpu) => {
                let wanted = world.wanted(cell) >> cpu & 1 != 0;
                if wanted && world.step_cpu(cpu, &|state| state.assign(ROOT, cell)).is_err() {
                    return self.undo(world, Outcome::CpuInUse);
                }
                self.go(Phase::Claim(cpu + 1))
            }
            Phase::Take => match world.take(cell) {
                Ok(()) => {
                    world.set_work(cell, Work::Building(0));
                    self.go(Phase::Wipe)
                }
                Err(outcome) => self.undo(world, outcome),
            },
            Phase::Wipe => self.wipe(world),
            Phase::Grant => match world.grant(cell) {
                Ok(()) => {
                    world.set_work(cell, Work::Ready);
                    Ok(DONE)
                }
                Err(outcome) => {
                    world.withdraw(cell);
                    self.undo(world, outcome)
                }
            },
            Phase::Order(cpu) if cpu == world.cpu_count() => match self.kind {
                Kind::Park => Ok(DONE),
                _ => self.go(Phase::Await(0)),
            },
            Phase::Order(cpu) => {
                let parks = self.parks();
                let ordered = self.caller != Some(cpu)
                    && world
                        .step_cpu(cpu, &|state| state.order_to_park(parks))
                        .is_ok_and(CpuState::has_to_park);
                if ordered {
                    world.zap(parks, cpu);
                    world.kick(cpu);
                }
                self.go(Phase::Order(cpu + 1))
            }
            Phase::Await(cpu) if cpu == world.cpu_count() => self.go(Phase::Parked),
            Phase::Await(cpu) => {
                let state = world.cpu(cpu);
                // Every other state than these two may still become On, by a CPU that has not parked.
                let awaited = state.cell == self.parks() && self.caller != Some(cpu);
                if awaited && state.has_to_park() {
                    return Ok(Progress::Wait(cpu));
                }
                self.go(Phase::Await(cpu + 1))
            }
            Phase::Parked => self.parked(world),
            Phase::Start => {
                world.prepare_start(cell);
                world.advance(cell, Event::Start)?;
                // A standby is kept from now on.
                if world.wanted(cell) == 0 { Ok(DONE) } else { self.go(Phase::TurnOn) }
            }
            Phase::TurnOn => {
                let cpu = self.first(world).ok_or(Outcome::Invalid)?;
                // Only the caller turns on a CPU of a cell of which none runs.
                if world.step_cpu(cpu, &|state| state.turn_on(cell)).is_err() {
                    return Err(Outcome::WrongState);
                }
                world.set_entry(cell, cpu);
                self.go(Phase::Ready)
            }
            Phase::Ready => {
                let cpu = self.first(world).ok_or(Outcome::Invalid)?;
                // Refused if the cell failed at once: its watchdog.
                let _ = world.step_cpu(cpu, &|state| state.ready());
                world.kick(cpu);
                Ok(DONE)
            }
            Phase::Withdraw => {
                world.withdraw(cell);
                self.go(Phase::Wipe)
            }
            Phase::GiveBack => {
                world.give_back(cell);
                self.go(Phase::ReturnCpu(0))
            }
            Phase::ReturnCpu(cpu) if cpu == world.cpu_count() => {
                world.set_work(cell, Work::Ready);
                world.advance(cell, Event::Destroy)?;
                self.failed.map_or(Ok(DONE), Err)
            }
            Phase::ReturnCpu(cpu) => {
                // CPUs of others are refused.
                let _ = world.step_cpu(cpu, &|state| state.assign(cell, ROOT));
                self.go(Phase::ReturnCpu(cpu + 1))
            }
        }
    }

    fn first(&self, world: &impl World) -> Option<usize> {
        let wanted = world.wanted(self.cell);
        (0..world.cpu_count()).find(|cpu| wanted >> cpu & 1 != 0)
    }

    fn begin(&mut self, world: &mut impl World) -> Result<Progress, Outcome> {
        let (cell, work) = (self.cell, world.work(self.cell));
        if self.kind == Kind::Create {
            return match work {
                Work::Building(_) => self.go(Phase::Wipe),
                _ => {
                    world.advance(cell, Event::Create)?;
                    world.set_work(cell, Work::Claiming);
                    self.go(Phase::Claim(0))
                }
            };
        }
        if world.state(cell) == CellState::Free {
            return Err(Outcome::NoSuchCell);
        }
        match (self.kind, work) {
            (Kind::Destroy, Work::Claiming | Work::Returning) => {
                world.set_work(cell, Work::Returning);
                return self.go(Phase::GiveBack);
            }
            // The cell may end itself at any time, and would then have to be cleared.
            (Kind::Loadable, _) if world.state(cell) == CellState::Running => {
                return Err(Outcome::WrongState);
            }
            // The cell has been loaded or has run: the root must not see what it has left.
            (Kind::Loadable, Work::Ready)
                if matches!(world.state(cell), CellState::Stopped | CellState::Failed) =>
            {
                world.set_work(cell, Work::Clearing(0));
            }
            (Kind::Loadable | Kind::Destroy, Work::Clearing(_)) => {}
            (Kind::Destroy, Work::Building(_)) => {
                world.set_work(cell, Work::Releasing(0));
                return self.go(Phase::Withdraw);
            }
            (Kind::Destroy, Work::Releasing(_)) => return self.go(Phase::Withdraw),
            (_, Work::Ready) => {}
            _ => return Err(Outcome::Busy),
        }
        let running = world.state(cell) == CellState::Running;
        if self.kind == Kind::Restart && !(running && world.wanted(cell) == 0) {
            return Err(Outcome::WrongState);
        }
        let changed = match self.kind {
            Kind::Loadable => world.advance(cell, Event::Loadable).map(drop),
            Kind::Stop => world.advance(cell, Event::Stop).map(drop),
            Kind::Destroy if running => {
                // The cell may stop itself in between.
                let _ = world.advance(cell, Event::Stop);
                Ok(())
            }
            Kind::Start | Kind::Park if running => Err(Outcome::WrongState),
            Kind::Destroy | Kind::Start | Kind::Park | Kind::Create | Kind::Restart => Ok(()),
        };
        changed.and_then(|()| self.go(Phase::Order(0)))
    }

    fn parked(&mut self, world: &mut impl World) -> Result<Progress, Outcome> {
        let cell = self.cell;
        // A CPU that parked later may have turned on one that was found off before. Such a start is cancelled by
        // a further round; when all are off at once, no CPU of the cell is left to turn on another.
        let off = |cpu| {
            let state = world.cpu(cpu);
            state.cell != self.parks()
                || state.power == CpuPower::Off
                // A CPU that cannot be reset runs the root no more.
                || self.caller.is_some() && state.power == CpuPower::Gone
                || self.caller == Some(cpu)
        };
        if !(0..world.cpu_count()).all(off) {
            return self.go(Phase::Order(0));
        }
        match self.kind {
            Kind::Loadable if world.work(cell) != Work::Ready => self.go(Phase::Wipe),
            Kind::Loadable => world.show(cell, true).map(|()| DONE),
            Kind::Stop => world.show(cell, false).map(|()| DONE),
            Kind::Start => {
                world.show(cell, false)?;
                self.go(Phase::Start)
            }
            Kind::Destroy => {
                world.show(cell, false)?;
                world.set_work(cell, Work::Releasing(0));
                self.go(Phase::Withdraw)
            }
            Kind::Restart => {
                world.end_dma()?;
                self.caller.into_iter().for_each(|cpu| world.set_entry(cell, cpu));
                world.withdraw(cell);
                world.set_work(cell, Work::Returning);
                self.go(Phase::GiveBack)
            }
            Kind::Park | Kind::Create => Ok(DONE),
        }
    }

    /// Zeroes a part of the memory. The position is kept with the cell, so any CPU of the root continues.
    fn wipe(&mut self, world: &mut impl World) -> Result<Progress, Outcome> {
        let cell = self.cell;
        let (position, wiped): (u64, fn(u64) -> Work) = match world.work(cell) {
            Work::Building(position) => (position, Work::Building),
            Work::Clearing(position) => (position, Work::Clearing),
            Work::Releasing(position) => (position, Work::Releasing),
            _ => return Err(Outcome::WrongState),
        };
        if let Some(next) = world.wipe(cell, position) {
            world.set_work(cell, wiped(next));
            return Ok(Progress::Later);
        }
        match world.work(cell) {
            Work::Building(_) => self.go(Phase::Grant),
            Work::Clearing(_) => {
                world.set_work(cell, Work::Ready);
                world.show(cell, true).map(|()| DONE)
            }
            _ => {
                world.set_work(cell, Work::Returning);
                self.go(Phase::GiveBack)
            }
        }
    }

    /// Returns everything to the root after a creation failed. The memory was not used by the cell.
    fn undo(&mut self, world: &mut impl World, outcome: Outcome) -> Result<Progress, Outcome> {
        self.failed = Some(outcome);
        world.set_work(self.cell, Work::Returning);
        self.go(Phase::GiveBack)
    }
}
