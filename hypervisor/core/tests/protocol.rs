// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks all interleavings of the steps of the ownership protocol (`rampart_hypervisor_core::protocol`), of
//! which the monitor executes the same code. The root and the cells make any call at any time; each CPU can
//! fault in each step, and each wait can end without a result.
//!
//! The checker is stateright: a state is a value and a step a function, so hostile calls are steps like others,
//! and it visits every reachable state once. loom would permute the accesses of a fixed program instead, and
//! shuttle only samples.

mod stepped;

use std::cell::Cell;

use rampart_hypervisor_core::interface::{CellState, CpuPower, Outcome, ROOT, StopReason};
use rampart_hypervisor_core::protocol::{
    CpuState, CpuStep, Kind, Leaving, LeavingStep, Management, Phase, Progress, Refusal, Work,
    World,
};
use rampart_hypervisor_core::state::{Event, next};
use stateright::{Checker, Model, Property};

use stepped::Stepped;

/// What a CPU executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    /// The guest of this cell, as it was started this often.
    Guest { cell: u32, life: u8 },
    /// EL2, on its way to being off.
    Park,
    /// It sleeps at EL2.
    Off,
    /// EL2: it has begun, and checks whether its cell still runs.
    Begun { cell: u32, life: u8 },
    /// EL2: it has claimed this CPU to turn it on.
    TurningOn { cell: u32, life: u8, target: usize, set: bool },
    /// EL2: it has ended its cell, and orders this CPU to park.
    Ending { cell: u32, other: usize },
    /// EL2: a call of the root that holds the managers' lock.
    Call(Management),
    /// EL2: no other CPU of the root runs, and this one starts it again.
    Restarting,
    /// EL2: waits for the others to leave.
    Leaving,
    /// EL2: it decides about leaving, and looks at this CPU.
    Closing(usize),
    /// EL2: a CPU that was off leaves.
    TurningOff,
    /// The firmware has turned it off.
    FirmwareOff,
    /// Linux, without the hypervisor.
    Linux,
}

/// The latest writer of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Content {
    Root,
    Zero,
    Cell,
}

/// A cell with one page, and what else belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Partition {
    state: CellState,
    work: Work,
    /// Number of starts, up to two.
    life: u8,
    root_maps: bool,
    /// The root can write the loadable memory.
    shown: bool,
    cell_maps: bool,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    words: Vec<u64>,
    entries: Vec<u8>,
    zapped: Vec<bool>,
    at: Vec<At>,
    /// By number, from 1.
    cells: Vec<Partition>,
    lock: Option<usize>,
    /// 1 after the root has been started again.
    root_life: u8,
    leaving: u64,
    /// A step found what must not be.
    broken: Option<&'static str>,
}

/// The machine: its CPUs, and the CPUs that each cell wants, one bit each.
struct Machine {
    cpus: usize,
    wanted: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The next step of what the CPU executes.
    Step(usize),
    /// The CPU gives up waiting, or EL2 faults: both release its locks and return an error.
    Abandon(usize),
    /// A guest's call.
    Manage(usize, Kind, u32),
    TurnOn(usize, usize),
    TurnOff(usize),
    End(usize),
    Leave(usize),
    /// The root turns off or resets the machine, and there is this standby.
    Restart(usize, u32),
    /// A guest writes its memory.
    Write(usize),
    /// The firmware does not turn off the CPU.
    FirmwareRefuses(usize),
}

impl Machine {
    fn with<T>(&self, state: &mut State, work: impl FnOnce(&mut Stepped<'_>) -> T) -> T {
        let words = state.words.iter().map(|word| Cell::new(*word)).collect();
        let mut stepped = Stepped { state, words, wanted: &self.wanted };
        let result = work(&mut stepped);
        let words = stepped.words.iter().map(Cell::get).collect();
        state.words = words;
        result
    }

    fn life(state: &State, cell: u32) -> u8 {
        if cell == ROOT { state.root_life } else { state.cells[cell as usize - 1].life }
    }

    fn runs(state: &State, cell: u32) -> bool {
        cell == ROOT || state.cells[cell as usize - 1].state == CellState::Running
    }

    fn has_no_cells(state: &State) -> bool {
        state.cells.iter().all(|cell| cell.state == CellState::Free)
    }

    /// Returns to the guest, which continues where it called.
    fn resume(state: &State, cpu: usize) -> At {
        let cell = CpuState::from_word(state.words[cpu]).cell;
        At::Guest { cell, life: Self::life(state, cell) }
    }

    fn step(&self, state: &mut State, cpu: usize) {
        let word = CpuState::from_word(state.words[cpu]);
        state.at[cpu] = match state.at[cpu] {
            // It takes the order to park.
            At::Guest { .. } => At::Park,
            At::Park => {
                let _ = self.with(state, |world| world.step_cpu(cpu, &CpuState::park));
                At::Off
            }
            At::Off if Leaving(state.leaving).is_closed() => {
                match self.with(state, |world| world.step_cpu(cpu, &CpuState::turn_off)) {
                    Ok(_) => At::TurningOff,
                    Err(_) => At::Off,
                }
            }
            At::Off => match self.with(state, |world| world.step_cpu(cpu, &CpuState::begin)) {
                Ok(_) => At::Begun { cell: word.cell, life: state.entries[cpu] },
                Err(_) => At::Off,
            },
            At::Begun { cell, life } if Self::runs(state, cell) => At::Guest { cell, life },
            At::Begun { .. } => At::Park,
            At::TurningOn { cell, life, target, set: false } => {
                state.entries[target] = life;
                At::TurningOn { cell, life, target, set: true }
            }
            At::TurningOn { cell, life, target, set: true } => {
                let _ = self.with(state, |world| world.step_cpu(target, &CpuState::ready));
                At::Guest { cell, life }
            }
            At::Ending { other, .. } if other == self.cpus => At::Park,
            At::Ending { cell, other } => {
                if other != cpu {
                    let order = |of: CpuState| of.order_to_park(cell);
                    let _ = self.with(state, |world| world.step_cpu(other, &order));
                }
                At::Ending { cell, other: other + 1 }
            }
            At::Call(mut call) => self.manage(state, cpu, &mut call),
            At::Restarting => {
                state.entries[cpu] = state.root_life;
                let done = self.with(state, |world| {
                    let turn_on = |of: CpuState| of.turn_on(ROOT);
                    let steps: [&CpuStep<'_>; 3] = [&CpuState::park, &turn_on, &CpuState::ready];
                    steps.iter().all(|step| world.step_cpu(cpu, step).is_ok())
                });
                if !done {
                    state.broken = Some("the root is not started again");
                }
                At::Off
            }
            At::Leaving => self.leave(state, cpu),
            At::Closing(other) => self.close(state, cpu, other),
            At::TurningOff => At::FirmwareOff,
            ended @ (At::FirmwareOff | At::Linux) => ended,
        };
    }

    fn manage(&self, state: &mut State, cpu: usize, call: &mut Management) -> At {
        let phase = call.phase;
        let restarts = call.kind == Kind::Restart;
        let standby = state.cells[call.cell as usize - 1];
        if restarts && phase == Phase::Parked && (standby.root_maps || standby.shown) {
            state.broken = Some("the root is started from memory that it could write");
        }
        let progress = self.with(state, |world| call.step(world));
        // `set_entry` of the monitor, in the same step.
        if phase == Phase::TurnOn && call.phase == Phase::Ready {
            let target = self.wanted[call.cell as usize - 1].trailing_zeros() as usize;
            state.entries[target] = Self::life(state, call.cell);
        }
        match progress {
            Progress::Next | Progress::Wait(_) => At::Call(*call),
            Progress::Done(result) if restarts => {
                Self::end_restart(state);
                if result.is_err() {
                    return Self::resume(state, cpu);
                }
                state.root_life = 1;
                At::Restarting
            }
            Progress::Later | Progress::Done(_) => {
                state.lock = None;
                Self::resume(state, cpu)
            }
        }
    }

    /// Restores the root tables, whatever the result is.
    fn end_restart(state: &mut State) {
        state.lock = None;
        for (word, zapped) in state.words.iter().zip(&mut state.zapped) {
            *zapped &= CpuState::from_word(*word).cell != ROOT;
        }
    }

    fn leave(&self, state: &mut State, cpu: usize) -> At {
        let leaving = Leaving(state.leaving);
        let cpus: Vec<_> = state.words.iter().map(|word| CpuState::from_word(*word)).collect();
        match leaving.next(cpu, cpus.into_iter()) {
            LeavingStep::Wait => At::Leaving,
            LeavingStep::Close => match leaving.close() {
                Some(closed) => {
                    state.leaving = closed.0;
                    At::Closing(0)
                }
                None => At::Leaving,
            },
            LeavingStep::Leave => {
                let _ = self.with(state, |world| world.step_cpu(cpu, &CpuState::leave));
                At::Linux
            }
            LeavingStep::Refused => Self::resume(state, cpu),
        }
    }

    fn close(&self, state: &mut State, cpu: usize, other: usize) -> At {
        let leaving = Leaving(state.leaving);
        if !Self::has_no_cells(state) {
            state.leaving = leaving.decide(false).0;
            return Self::resume(state, cpu);
        }
        if other == self.cpus {
            state.leaving = leaving.decide(true).0;
            return At::Leaving;
        }
        // The firmware reports whether a CPU is off.
        if leaving.has_arrived(other) || state.at[other] == At::FirmwareOff {
            return At::Closing(other + 1);
        }
        At::Closing(other)
    }

    fn guest_actions(&self, state: &State, cpu: usize, cell: u32, actions: &mut Vec<Action>) {
        let power = CpuState::from_word(state.words[cpu]).power;
        if power == CpuPower::Parking {
            actions.push(Action::Step(cpu));
            if state.zapped[cpu] {
                return;
            }
        }
        actions.push(Action::TurnOff(cpu));
        actions.extend(
            (0..self.cpus).filter(|other| *other != cpu).map(|other| Action::TurnOn(cpu, other)),
        );
        if cell != ROOT {
            actions.extend([Action::End(cpu), Action::Write(cpu)]);
            return;
        }
        actions.push(Action::Leave(cpu));
        if state.lock.is_none() {
            let kinds = [Kind::Create, Kind::Loadable, Kind::Start, Kind::Stop, Kind::Destroy];
            for (number, cell) in (1..).zip(&state.cells) {
                actions.extend(kinds.map(|kind| Action::Manage(cpu, kind, number)));
                // The hypervisor itself makes this one, for a cell that has ended.
                let ended = !matches!(cell.state, CellState::Free | CellState::Running);
                actions.extend(ended.then_some(Action::Manage(cpu, Kind::Park, number)));
                if self.wanted[number as usize - 1] == 0 {
                    actions.push(Action::Restart(cpu, number));
                }
            }
        }
    }
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let partition = Partition {
            state: CellState::Free,
            work: Work::Ready,
            life: 0,
            root_maps: true,
            shown: false,
            cell_maps: false,
            content: Content::Root,
        };
        vec![State {
            words: vec![CpuState { cell: ROOT, power: CpuPower::On }.word(); self.cpus],
            entries: vec![0; self.cpus],
            zapped: vec![false; self.cpus],
            at: vec![At::Guest { cell: ROOT, life: 0 }; self.cpus],
            cells: vec![partition; self.wanted.len()],
            lock: None,
            root_life: 0,
            leaving: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (cpu, at) in state.at.iter().enumerate() {
            match at {
                At::Guest { cell, .. } => self.guest_actions(state, cpu, *cell, actions),
                At::FirmwareOff | At::Linux => {}
                At::TurningOff => {
                    actions.extend([Action::Step(cpu), Action::FirmwareRefuses(cpu)]);
                }
                At::Call(_) | At::Closing(_) | At::Leaving => {
                    actions.extend([Action::Step(cpu), Action::Abandon(cpu)]);
                }
                At::Park
                | At::Restarting
                | At::Off
                | At::Begun { .. }
                | At::TurningOn { .. }
                | At::Ending { .. } => {
                    actions.push(Action::Step(cpu));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step(cpu) => self.step(&mut state, cpu),
            Action::Abandon(cpu) => match state.at[cpu] {
                At::Call(call) => {
                    if call.kind == Kind::Restart {
                        Self::end_restart(&mut state);
                    }
                    state.lock = None;
                    state.at[cpu] = Self::resume(&state, cpu);
                }
                At::Closing(_) => {
                    state.leaving = Leaving(state.leaving).decide(false).0;
                    state.at[cpu] = Self::resume(&state, cpu);
                }
                _ => {
                    state.leaving = Leaving(state.leaving).withdraw(cpu)?.0;
                    state.at[cpu] = Self::resume(&state, cpu);
                }
            },
            Action::Manage(cpu, kind, cell) => {
                state.lock = Some(cpu);
                state.at[cpu] = At::Call(Management::new(kind, cell));
            }
            Action::Restart(cpu, standby) => {
                state.lock = Some(cpu);
                state.at[cpu] = At::Call(Management::restart(standby, cpu));
            }
            Action::TurnOn(cpu, target) => {
                let At::Guest { cell, life } = state.at[cpu] else { return None };
                let step = |of: CpuState| of.turn_on(cell);
                self.with(&mut state, |world| world.step_cpu(target, &step)).ok()?;
                state.at[cpu] = At::TurningOn { cell, life, target, set: false };
            }
            Action::TurnOff(cpu) => state.at[cpu] = At::Park,
            Action::End(cpu) => {
                let At::Guest { cell, .. } = state.at[cpu] else { return None };
                let event = Event::Fail(StopReason::Unexpected);
                let _ = self.with(&mut state, |world| world.advance(cell, event));
                state.at[cpu] = At::Ending { cell, other: 0 };
            }
            Action::Leave(cpu) => {
                if !Self::has_no_cells(&state) || state.root_life != 0 {
                    return None;
                }
                state.leaving = Leaving(state.leaving).arrive(cpu)?.0;
                state.at[cpu] = At::Leaving;
            }
            Action::Write(cpu) => {
                let At::Guest { cell, .. } = state.at[cpu] else { return None };
                let mapped = state.cells[cell as usize - 1].cell_maps;
                if !mapped || state.zapped[cpu] {
                    state.broken = Some("a CPU runs a cell without memory");
                }
                state.cells[cell as usize - 1].content = Content::Cell;
            }
            Action::FirmwareRefuses(cpu) => state.at[cpu] = At::Park,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no step is broken", |_: &Self, state: &State| state.broken.is_none()),
            Property::always("a page has one owner", |_, state: &State| {
                state.cells.iter().all(|cell| {
                    !(cell.root_maps && (cell.cell_maps || cell.content == Content::Cell))
                })
            }),
            Property::always("a CPU runs only what its owner started", |_, state: &State| {
                state.at.iter().zip(&state.words).all(|(at, word)| match at {
                    At::Guest { cell, life } => {
                        let word = CpuState::from_word(*word);
                        word.cell == *cell
                            && matches!(word.power, CpuPower::On | CpuPower::Parking)
                            && *life == Self::life(state, *cell)
                    }
                    _ => true,
                })
            }),
            Property::always("the lock is held only during a call", |_, state: &State| {
                let calls = |at: &At| matches!(at, At::Call(_));
                state.at.iter().position(calls) == state.lock
                    && state.at.iter().filter(|at| calls(at)).count() <= 1
            }),
            Property::always("a destroyed cell owns nothing", |_, state: &State| {
                (1..).zip(&state.cells).all(|(number, cell)| {
                    let owns = |word: &u64| CpuState::from_word(*word).cell == number;
                    cell.state != CellState::Free
                        || (cell.root_maps && !cell.cell_maps && !state.words.iter().any(owns))
                })
            }),
            Property::always("after leaving no CPU is left behind", |_, state: &State| {
                let left = state.at.contains(&At::Linux);
                let step = Leaving(state.leaving).next(0, core::iter::empty());
                let decided = step == LeavingStep::Leave;
                let out = |at: &At| {
                    matches!(at, At::Linux | At::FirmwareOff) || *at == At::Leaving && decided
                };
                !left || (state.at.iter().all(out) && Self::has_no_cells(state))
            }),
            Property::always("each CPU in EL2 can leave it", |model, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                (0..model.cpus).all(|cpu| {
                    let own = |action: &&Action| {
                        matches!(action, Action::Step(of) | Action::Abandon(of) if *of == cpu)
                    };
                    let ends = |action: &Action| model.next_state(state, *action).is_some();
                    let waits = matches!(
                        state.at[cpu],
                        At::Guest { .. } | At::Off | At::FirmwareOff | At::Linux
                    );
                    // A CPU that waits for one that closes leaves when that one decides.
                    let closing = |at: &At| matches!(at, At::Closing(_));
                    waits
                        || actions.iter().filter(own).any(ends)
                        || (state.at[cpu] == At::Leaving && state.at.iter().any(closing))
                })
            }),
            Property::sometimes("a cell runs on each of its CPUs", |model, state: &State| {
                let all = model.wanted[0].count_ones() as usize;
                let runs = |at: &&At| matches!(at, At::Guest { cell: 1, life: 2 });
                state.at.iter().filter(runs).count() == all
            }),
            Property::sometimes("the root runs again beside a cell", |model, state: &State| {
                let runs = |number, life| {
                    let at = |at: &At| *at == At::Guest { cell: number, life };
                    state.at.iter().any(at)
                };
                let has_cell = model.wanted[0] != 0;
                !model.wanted.contains(&0) || runs(ROOT, 1) && (!has_cell || runs(1, 1))
            }),
            Property::always("of a root that is started again nothing runs", |_, state: &State| {
                !state.at.contains(&At::Restarting)
                    || state.words.iter().zip(&state.at).all(|(word, at)| {
                        let word = CpuState::from_word(*word);
                        word.cell != ROOT
                            || *at == At::Restarting
                            || !matches!(at, At::Guest { .. })
                                && matches!(word.power, CpuPower::Off | CpuPower::Gone)
                    })
            }),
            Property::sometimes("all leave", |model, state: &State| {
                let left = |at: &&At| **at == At::Linux;
                state.at.iter().filter(left).count() == model.cpus
            }),
            Property::sometimes("one leaves, after the others are off", |_, state: &State| {
                let left = |at: &&At| **at == At::Linux;
                state.at.iter().filter(left).count() == 1
                    && state.at.iter().all(|at| matches!(at, At::Linux | At::FirmwareOff))
            }),
        ]
    }
}

fn check(cpus: usize, wanted: &[u64]) {
    let checker = Machine { cpus, wanted: wanted.to_vec() }.checker().threads(2).spawn_bfs().join();
    // A model that has lost its steps would keep every invariant.
    assert!(checker.unique_state_count() > 10_000);
    checker.assert_properties();
}

/// Checks a machine with more states than memory: the first steps into a state, nearest to the start first.
fn check_many(cpus: usize, wanted: &[u64]) {
    const STEPS: usize = 12_000_000;
    let machine = Machine { cpus, wanted: wanted.to_vec() };
    let checker = machine.checker().threads(2).target_state_count(STEPS).spawn_bfs().join();
    assert!(checker.unique_state_count() > STEPS / 8);
    for property in checker.model().properties() {
        if property.expectation != stateright::Expectation::Sometimes {
            checker.assert_no_discovery(property.name);
        }
    }
}

#[test]
#[ignore = "takes half a GiB; make test-long runs it, with optimisation"]
fn three_cpus_and_two_cells_that_want_one_of_them_keep_the_invariants() {
    check_many(3, &[0b110, 0b010]);
}

#[test]
#[ignore = "takes half a GiB; make test-long runs it, with optimisation"]
fn four_cpus_and_two_cells_keep_the_invariants() {
    check_many(4, &[0b0110, 0b1000]);
}

#[test]
fn two_cpus_and_a_cell_keep_the_invariants() {
    check(2, &[0b10]);
}

#[test]
fn two_cpus_and_a_standby_keep_the_invariants() {
    check(2, &[0]);
}

#[test]
#[ignore = "takes minutes without optimisation; make test-long runs it"]
fn two_cpus_a_cell_and_a_standby_keep_the_invariants() {
    check(2, &[0b10, 0]);
}

#[test]
#[ignore = "takes half a GiB; make test-long runs it, with optimisation"]
fn three_cpus_a_cell_and_a_standby_keep_the_invariants() {
    check_many(3, &[0b110, 0]);
}

#[test]
fn two_cpus_and_two_cells_that_want_one_of_them_keep_the_invariants() {
    check(2, &[0b10, 0b10]);
}

#[test]
fn three_cpus_and_a_cell_of_two_keep_the_invariants() {
    check(3, &[0b110]);
}
