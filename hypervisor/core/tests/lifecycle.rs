// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the header of the launch, states of cells and CPUs, failures, PSCI and hypercalls.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::support::{HYPERVISOR, MPIDRS, device, press, ram, read, zeroed_status};
use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion, NAME_BYTES};
use rampart_hypervisor_core::hypercall::Call;
use rampart_hypervisor_core::identification::carried;
use rampart_hypervisor_core::interface::{
    CellState, Condition, CpuPower, Exit, FAILURE_SLOTS, Header, Hypercall, LOG_BYTES, MAGIC,
    MAXIMUM_CPUS, Outcome, REVISION, STATUS_BYTES, STATUS_MAGIC, Status, StopReason,
};
use rampart_hypervisor_core::launch::watchdog_ticks;
use rampart_hypervisor_core::protocol::{CpuState, Kind};
use rampart_hypervisor_core::psci::{Caller, PsciAction, handle_call};
use rampart_hypervisor_core::state::{Event, Snapshot, is_wiped, next};
use zerocopy::FromZeros;

/// Returns the status pages after their initialisation at the launch.
fn status() -> Box<Status> {
    let status = zeroed_status();
    status.initialize(&MPIDRS);
    status
}

fn header() -> Header {
    let mut header = Header::new_zeroed();
    header.magic = MAGIC;
    header.revision = REVISION;
    header.header_bytes = size_of::<Header>() as u32;
    header.image_bytes = 0x9000;
    header.core_bytes = 0x1_0000;
    header.per_cpu_bytes = 0x4000;
    header.entry = 0x800;
    header.physical_base = HYPERVISOR.start;
    header.memory_bytes = HYPERVISOR.end - HYPERVISOR.start;
    header.configuration_bytes = 0x1238;
    header.cpu_count = 4;
    header.rendezvous_microseconds = 100_000;
    header.mpidrs[..4].copy_from_slice(&MPIDRS);
    header.arrange();
    header
}

#[test]
fn a_valid_header_has_a_layout() {
    let layout = header().layout(HYPERVISOR.start).expect("a valid header");
    let base = HYPERVISOR.start;
    assert_eq!(layout.memory, HYPERVISOR);
    assert_eq!(layout.per_cpu, base + 0x1_0000..base + 0x2_0000);
    assert_eq!(layout.configuration, base + 0x2_0000..base + 0x2_1238);
    assert_eq!(layout.status, base + 0x2_2000..base + 0x2_2000 + STATUS_BYTES as u64);
    assert_eq!(layout.pool, layout.status.end..HYPERVISOR.end);
    assert_eq!(header().cpus(), MPIDRS);
}

#[test]
fn refuses_a_header_with_inconsistent_offsets() {
    type Change = fn(&mut Header);
    let cases: &[(Outcome, Change)] = &[
        (Outcome::Invalid, |header| header.magic ^= 1),
        (Outcome::Invalid, |header| header.header_bytes += 8),
        (Outcome::WrongRevision, |header| header.revision += 1),
        (Outcome::Invalid, |header| header.physical_base += 1 << 21),
        (Outcome::Invalid, |header| header.memory_bytes += 4096),
        (Outcome::Invalid, |header| header.memory_bytes = 0),
        (Outcome::Invalid, |header| header.memory_bytes = !0x1f_ffff),
        (Outcome::Invalid, |header| header.core_bytes += 1),
        (Outcome::Invalid, |header| header.core_bytes = !0xfff),
        (Outcome::Invalid, |header| header.per_cpu_bytes = 1 << 62),
        (Outcome::Invalid, |header| header.image_bytes = 0x1_0001),
        (Outcome::Invalid, |header| header.entry = 0x9000),
        (Outcome::Invalid, |header| header.configuration -= 8),
        (Outcome::Invalid, |header| header.configuration += 4),
        (Outcome::Invalid, |header| header.configuration_bytes = 0x8001),
        (Outcome::Invalid, |header| header.configuration_bytes = u64::MAX),
        (Outcome::Invalid, |header| header.status += 8),
        (Outcome::Invalid, |header| header.status -= 0x1000),
        (Outcome::Invalid, |header| header.status = !0xfff),
        (Outcome::Invalid, |header| header.cpu_count = 0),
        (Outcome::Invalid, |header| header.cpu_count = MAXIMUM_CPUS as u32 + 1),
        (Outcome::Invalid, |header| header.rendezvous_microseconds = 0),
        (Outcome::Invalid, |header| header.rendezvous_microseconds = u32::MAX),
        (Outcome::Invalid, |header| header.mpidrs[3] = 1),
    ];
    for (number, (wanted, change)) in cases.iter().enumerate() {
        let mut header = header();
        change(&mut header);
        assert_eq!(header.layout(HYPERVISOR.start).err(), Some(*wanted), "case {number}");
        assert!(header.cpus().len() <= MAXIMUM_CPUS);
    }
    assert_eq!(header().layout(0).err(), Some(Outcome::Invalid));
}

#[test]
fn every_event_in_every_state_has_a_result() {
    use CellState::{Created, Failed, Free, Loadable, Running, Stopped};
    let events = [
        Event::Create,
        Event::Loadable,
        Event::Start,
        Event::Stop,
        Event::End(StopReason::SystemOff),
        Event::Fail(StopReason::Watchdog),
        Event::Destroy,
    ];
    let wrong = Err(Outcome::WrongState);
    let none = Err(Outcome::NoSuchCell);
    let table = [
        (Free, [Ok(Created), none, none, none, none, none, none]),
        (Created, [wrong, Ok(Loadable), wrong, Ok(Created), wrong, wrong, Ok(Free)]),
        (Loadable, [wrong, Ok(Loadable), Ok(Running), Ok(Stopped), wrong, wrong, Ok(Free)]),
        (Running, [wrong, wrong, wrong, Ok(Stopped), Ok(Stopped), Ok(Failed), Ok(Free)]),
        (Stopped, [wrong, Ok(Loadable), Ok(Running), Ok(Stopped), wrong, wrong, Ok(Free)]),
        (Failed, [wrong, Ok(Loadable), Ok(Running), Ok(Failed), wrong, wrong, Ok(Free)]),
    ];
    for (state, answers) in table {
        for (event, answer) in events.into_iter().zip(answers) {
            assert_eq!(next(state, event), answer, "{state:?} {event:?}");
        }
    }
    // A cell that the root has stopped, of which a CPU did not park.
    assert_eq!(next(Stopped, Event::Fail(StopReason::Unreachable)), Ok(Failed));
}

#[test]
fn memory_without_another_owner_is_wiped() {
    let region = |physical, flags: MemoryFlags| MemoryRegion {
        physical,
        guest: physical,
        bytes: 0x1000,
        flags: flags.bits(),
        colours: 0,
    };
    let shared = MemoryFlags::READ | MemoryFlags::SHARED;
    let mut press = press();
    press.memory.push(region(0x5a00_0000, shared));
    let press = read(&press);
    let wiped = |region, others: &[Configuration<'_>]| is_wiped(&region, others.iter());
    assert!(wiped(region(0x5b00_0000, ram()), &[press]));
    assert!(wiped(region(0x5b00_0000, shared), &[press]));
    assert!(!wiped(region(0x5a00_0000, shared), &[press]));
    assert!(wiped(region(0x5a00_0000, shared), &[]), "no other cell has it any more");
    assert!(!wiped(region(0x5b00_0000, device()), &[]));
}

#[test]
fn the_status_pages_have_each_state_of_a_cell() {
    let status = status();
    assert_eq!(status.magic.load(Relaxed), STATUS_MAGIC);
    let cell = &status.cells[2];
    let mut name = [0; NAME_BYTES];
    name[..5].copy_from_slice(b"press");
    status.advance(2, Event::Create, 10).expect("free");
    status.describe(2, &name, 0b110, 500);
    assert_eq!(cell.name[0].load(Relaxed).to_le_bytes(), *b"press\0\0\0");
    assert_eq!(status.advance(2, Event::Start, 11), Err(Outcome::WrongState));
    status.advance(2, Event::Loadable, 12).expect("created");
    status.advance(2, Event::Start, 13).expect("loadable");
    assert_eq!((cell.starts.load(Relaxed), cell.changed.load(Relaxed)), (1, 13));
    assert_eq!(status.changes.load(Relaxed), 3);
    // Its watchdog.
    assert!(!status.is_overdue(2, 513) && status.is_overdue(2, 514));
    status.kick(2, 514);
    assert!(!status.is_overdue(2, 1014) && !status.is_overdue(2, 0));
    status.advance(2, Event::End(StopReason::SystemReset), 20).expect("running");
    assert_eq!(cell.condition().stop_reason, StopReason::SystemReset);
    assert!(!status.is_overdue(2, u64::MAX), "the cell does not run");
    status.advance(2, Event::Destroy, 30).expect("stopped");
    assert_eq!(cell.condition.load(Relaxed), 0, "free, no reason, no failure");
    let left = [&cell.name[0], &cell.cpus, &cell.starts, &cell.watchdog_ticks];
    assert!(left.iter().all(|word| word.load(Relaxed) == 0));
    assert_eq!(status.advance(16, Event::Create, 0), Err(Outcome::NoSuchCell));
    assert_eq!(status.advance(u32::MAX, Event::Create, 0), Err(Outcome::NoSuchCell));
}

#[test]
fn a_failure_is_recorded_and_fails_the_cell_once() {
    let status = status();
    for event in [Event::Create, Event::Loadable, Event::Start] {
        status.advance(1, event, 1).expect("in order");
    }
    let snapshot = Snapshot { program_counter: 0x1234, registers: [7; 31], ..Snapshot::default() };
    assert!(status.fail(1, 3, StopReason::MemoryWrite, &snapshot, 99));
    assert!(!status.fail(1, 2, StopReason::ExternalAbort, &snapshot, 100));
    let cell = &status.cells[1];
    let (state, stop_reason) = (CellState::Failed, StopReason::MemoryWrite);
    let first = Condition { state, stop_reason, failure: 1 };
    assert_eq!(cell.condition(), first, "the first failure failed the cell");
    assert_eq!(status.failures.load(Relaxed), 2);
    let record = &status.failure[0];
    assert_eq!(record.sequence.load(Relaxed), 1);
    assert_eq!((record.cpu.load(Relaxed), record.time.load(Relaxed)), (3, 99));
    assert_eq!(record.program_counter.load(Relaxed), 0x1234);
    assert!(record.registers.iter().all(|register| register.load(Relaxed) == 7));
    for number in 2..FAILURE_SLOTS as u64 + 3 {
        status.fail(1, 0, StopReason::Watchdog, &snapshot, number);
    }
    assert_eq!(status.failure[2].sequence.load(Relaxed), FAILURE_SLOTS as u64 + 3);
    assert_eq!(status.failure[3].sequence.load(Relaxed), 4);
    // A cell that failed starts again.
    assert_eq!(status.advance(1, Event::Loadable, 5), Ok(CellState::Loadable));
    assert_eq!(status.advance(1, Event::Start, 6), Ok(CellState::Running));
    assert_eq!(
        cell.condition(),
        Condition { state: CellState::Running, stop_reason: StopReason::None, failure: 1 }
    );
}

#[test]
fn no_reader_sees_a_failed_cell_without_its_reason_and_record() {
    let status = status();
    for event in [Event::Create, Event::Loadable] {
        status.advance(1, event, 1).expect("in order");
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..20_000_u64 {
                status.advance(1, Event::Start, 2 * turn).expect("loadable or failed");
                assert!(status.fail(1, 0, StopReason::Watchdog, &Snapshot::default(), turn));
            }
            ended.store(true, Relaxed);
        });
        let mut failures = 0;
        while !ended.load(Relaxed) {
            let Condition { state, stop_reason, failure } = status.cells[1].condition();
            assert!(failure >= failures, "{failure} after {failures}");
            failures = failure;
            match state {
                CellState::Failed => {
                    assert_eq!(stop_reason, StopReason::Watchdog);
                    assert!(status.failures.load(Relaxed) >= u64::from(failure) && failure > 0);
                }
                CellState::Running => assert_eq!(stop_reason, StopReason::None),
                CellState::Loadable => assert_eq!(failure, 0),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_started_cell_is_not_overdue_by_its_time_before_the_start() {
    let status = status();
    status.advance(1, Event::Create, 1).expect("free");
    status.describe(1, &[0; NAME_BYTES], 0b10, 500);
    status.advance(1, Event::Loadable, 1).expect("created");
    let (time, mut overdue) = (AtomicU64::new(0), false);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..20_000_u64 {
                time.store(turn * 1_000, SeqCst);
                status.advance(1, Event::Start, turn * 1_000).expect("loadable or stopped");
                status.advance(1, Event::Stop, turn * 1_000).expect("running");
            }
            ended.store(true, Relaxed);
        });
        while !ended.load(Relaxed) {
            overdue |= status.is_overdue(1, time.load(SeqCst));
        }
    });
    assert!(!overdue);
}

#[test]
fn one_of_many_concurrent_failures_fails_the_cell() {
    let status = status();
    for event in [Event::Create, Event::Loadable, Event::Start] {
        status.advance(1, event, 1).expect("in order");
    }
    let failed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_usize)
            .map(|cpu| {
                let status = &status;
                scope.spawn(move || {
                    status.fail(1, cpu, StopReason::Unexpected, &Snapshot::default(), 1)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join())
            .filter(|failed| *failed.as_ref().expect("no panic"))
            .count()
    });
    assert_eq!(failed, 1);
    assert!((1..=4).contains(&status.failures.load(Relaxed)));
}

#[test]
fn exit_counters_are_reset_for_each_owner() {
    let status = status();
    let cpu = &status.cpus[1];
    cpu.count(Exit::Psci);
    cpu.count(Exit::Psci);
    cpu.count(Exit::Zapped);
    assert_eq!((cpu.exits[Exit::Psci as usize].load(Relaxed), cpu.all_exits()), (2, 3));
    cpu.set_state(0, CpuPower::Off);
    cpu.step(&|state| state.assign(0, 4)).expect("the root's, and off");
    let (cell, power) = (4, CpuPower::Off);
    assert_eq!((cpu.cpu_state(), cpu.all_exits()), (CpuState { cell, power }, 0));
}

#[test]
fn the_log_keeps_the_latest_bytes() {
    let status = status();
    status.log(1, b"first\n");
    let long = "x".repeat(LOG_BYTES);
    status.log(1, long.as_bytes());
    assert_eq!(status.logged.load(Relaxed), LOG_BYTES as u64 + 6);
    assert!(status.log.iter().all(|byte| byte.load(Relaxed) == b'x'));
}

const ON: u64 = 0xc400_0003;
const INFO: u64 = 0xc400_0004;
const NOT_SUPPORTED: PsciAction = PsciAction::Value(-1_i64 as u64);
const INVALID: PsciAction = PsciAction::Value(-2_i64 as u64);

/// Cell 1 has the CPUs 1 and 2.
fn cell_with_cpus() -> Box<Status> {
    let status = status();
    status.cpus[1].set_state(1, CpuPower::On);
    status.cpus[2].set_state(1, CpuPower::Off);
    status
}

fn call(status: &Status, registers: [u64; 4]) -> PsciAction {
    let press = read(&press());
    let caller = Caller { status, cell: 1 };
    handle_call(&registers, &caller, |at| press.executes(at), |function| press.forwards(function))
}

#[test]
fn only_own_cpus_are_turned_on_and_only_once() {
    let status = cell_with_cpus();
    let on = |target, entry| call(&status, [ON, target, entry, 7]);
    assert_eq!(on(0, 0x1000), INVALID, "a CPU of the root");
    assert_eq!(on(0x100, 0x1000), INVALID);
    assert_eq!(on(5, 0x1000), INVALID, "no such CPU");
    assert_eq!(on(1 << 31 | 2, 0x1000), INVALID);
    assert_eq!(on(1, 0x1000), PsciAction::Value(-4_i64 as u64), "ALREADY_ON");
    let invalid_address = PsciAction::Value(-9_i64 as u64);
    assert_eq!(on(2, 0x80_0000), invalid_address, "not executable by the cell");
    assert_eq!(on(2, 0x4000_0000), invalid_address);
    assert_eq!(call(&status, [INFO, 2, 0, 0]), PsciAction::Value(1), "off");
    assert_eq!(on(2, 0x2000), PsciAction::TurnOn { cpu: 2, entry: 0x2000, context: 7 });
    assert_eq!(call(&status, [INFO, 2, 0, 0]), PsciAction::Value(2), "pending");
    assert_eq!(on(2, 0x2000), PsciAction::Value(-5_i64 as u64), "ON_PENDING");
    for (power, answer) in
        [(CpuPower::Starting, 2), (CpuPower::Parking, 0), (CpuPower::Gone, 1), (CpuPower::On, 0)]
    {
        status.cpus[2].set_state(1, power);
        assert_eq!(call(&status, [INFO, 2, 0, 0]), PsciAction::Value(answer), "{power:?}");
    }
    assert_eq!(call(&status, [INFO, 0, 0, 0]), INVALID, "a CPU of the root");
    assert_eq!(call(&status, [INFO, 2, 1, 0]), INVALID, "no higher levels");
    assert_eq!(call(&status, [0x8400_0003, 2, 0x1000, 0]), PsciAction::Value(-4_i64 as u64));
}

#[test]
fn every_other_call_returns_a_result() {
    let status = cell_with_cpus();
    let call = |function| call(&status, [function, 0, 0, 0]);
    assert_eq!(call(0x8400_0000), PsciAction::Value(0x1_0001));
    assert_eq!(call(0x8000_0000), PsciAction::Value(0x1_0001), "the calling convention's version");
    assert_eq!(call(0x8400_0002), PsciAction::TurnOff);
    assert_eq!(call(0xc400_0001), PsciAction::Wait);
    assert_eq!(call(0x8400_0006), PsciAction::Value(2), "no migration is needed");
    assert_eq!(call(0x8400_0008), PsciAction::Stop(StopReason::SystemOff));
    assert_eq!(call(0x8400_0009), PsciAction::Stop(StopReason::SystemReset));
    let forwarded = PsciAction::Forward(0xc200_0010);
    assert_eq!(call(0xc200_0010), forwarded);
    assert_eq!(call(0xffff_ffff_c200_0010), forwarded, "the function is 32 bits");
    assert_eq!(call(0xc201_0010), forwarded, "the hint about vector registers");
    assert_eq!(call(0x8401_0002), PsciAction::TurnOff, "also for PSCI");
    let refused = [
        0,
        0xc200_0013,
        0x8400_0005,
        0x8400_000b,
        0xc400_000e,
        0xc400_0012,
        0x8400_0013,
        0x8400_001f,
        0xc400_001f,
        0x8000_8000,
        0x8600_ff01,
        0xffff_ffff,
    ];
    for function in refused {
        assert_eq!(call(function), NOT_SUPPORTED, "{function:#x}");
    }
}

#[test]
fn psci_functions_are_never_forwarded() {
    let status = cell_with_cpus();
    let caller = Caller { status: &status, cell: 1 };
    let all_forwarded = |function| handle_call(&[function, 0, 0, 0], &caller, |_| true, |_| true);
    for function in (0x8400_0000..0x8400_0020).chain(0xc400_0000..0xc400_0020) {
        for hinted in [function, function | 1 << 16] {
            let forwarded = matches!(all_forwarded(hinted), PsciAction::Forward(_));
            assert!(!forwarded, "{hinted:#x}");
        }
    }
    assert_eq!(all_forwarded(0x8400_0020), PsciAction::Forward(0x8400_0020));
}

#[test]
fn psci_features_lists_the_supported_functions() {
    let status = cell_with_cpus();
    let feature = |function| call(&status, [0x8400_000a, function, 0, 0]);
    for function in [0x8400_0000, 0xc400_0001, 0x8400_0002, ON, INFO, 0x8400_0008, 0x8000_0000] {
        assert_eq!(feature(function), PsciAction::Value(0), "{function:#x}");
    }
    for function in [0x8400_0005, 0xc400_000e, 0xc400_0012, 0xc200_0010, 0] {
        assert_eq!(feature(function), NOT_SUPPORTED, "{function:#x}");
    }
}

#[test]
fn random_calls_cause_no_panic_and_affect_no_foreign_cpu() {
    let status = cell_with_cpus();
    let mut word = 1_u64;
    let mut random = || {
        // A xorshift generator.
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word
    };
    for _ in 0..50_000 {
        let function = [0x8400_0000, 0xc400_0000][random() as usize % 2] + random() % 0x20;
        let mut registers = [function, random() % 5, random() % 0x1_0000, random()];
        if random() % 4 == 0 {
            registers[random() as usize % 4] = random();
        }
        if let PsciAction::TurnOn { cpu, .. } = call(&status, registers) {
            assert_eq!(cpu, 2);
            status.cpus[2].set_state(1, CpuPower::Off);
        }
    }
    assert!(
        status
            .cpus
            .iter()
            .enumerate()
            .all(|(cpu, it)| cpu == 1 || it.cpu_state().power != CpuPower::OnPending)
    );
}

#[test]
fn decodes_hypercalls_and_checks_permission() {
    let status = cell_with_cpus();
    let read = |call: Hypercall, first, second, cell| {
        Call::read(&[u32::from(call).into(), first, second], cell, &status)
    };
    assert_eq!(
        read(Hypercall::CellCreate, 0x4000_0000, 0x1000, 0),
        Ok(Call::Create { start: 0x4000_0000, bytes: 0x1000 })
    );
    assert_eq!(read(Hypercall::CellStart, 3, 0, 0), Ok(Call::Manage(Kind::Start, 3)));
    for cell in [0, 16, u64::MAX] {
        assert_eq!(read(Hypercall::CellDestroy, cell, 0, 0), Err(Outcome::NoSuchCell), "{cell}");
    }
    for call in [
        Hypercall::Disable,
        Hypercall::CellCreate,
        Hypercall::CellLoadable,
        Hypercall::CellStart,
        Hypercall::CellStop,
        Hypercall::CellDestroy,
        Hypercall::Configuration,
    ] {
        assert_eq!(read(call, 99, 0, 1), Err(Outcome::NotPermitted), "{call:?}");
    }
    assert_eq!(read(Hypercall::Configuration, 0, 0, 0), Ok(Call::Configuration(0)));
    assert_eq!(read(Hypercall::Configuration, 3, 0, 0), Ok(Call::Configuration(3)));
    assert_eq!(read(Hypercall::Configuration, 16, 0, 0), Err(Outcome::NoSuchCell));
    assert_eq!(read(Hypercall::CpuInfo, 2, 0, 1), Ok(Call::CpuInfo(2)));
    assert_eq!(read(Hypercall::CpuInfo, 0, 0, 1), Err(Outcome::NotPermitted));
    assert_eq!(read(Hypercall::CpuInfo, 2, 0, 0), Ok(Call::CpuInfo(2)));
    for cpu in [4, 32, u64::MAX] {
        assert_eq!(read(Hypercall::CpuInfo, cpu, 0, 0), Err(Outcome::Invalid), "{cpu}");
    }
    assert_eq!(read(Hypercall::Doorbell, u64::MAX, 0, 1), Ok(Call::Doorbell(u64::MAX)));
    assert_eq!(read(Hypercall::WatchdogKick, 0, 0, 1), Ok(Call::WatchdogKick));
    for function in [0, 0xc600_5207, 0xc600_52ff, 0x1_c600_5200, u64::MAX] {
        assert_eq!(Call::read(&[function, 0, 0], 0, &status), Err(Outcome::NotSupported));
    }
}

#[test]
fn a_standby_is_used_only_while_it_is_kept_and_beside_cells() {
    let status = cell_with_cpus();
    status.advance(1, Event::Create, 0).expect("a valid event");
    status.describe(1, &[0; 32], 0b110, 0);
    assert_eq!(status.standby(), (None, true));
    assert!(!status.is_restarted());
    for (event, kept) in [
        (Event::Create, None),
        (Event::Loadable, None),
        (Event::Start, Some(2)),
        (Event::Stop, None),
        (Event::Start, Some(2)),
    ] {
        status.advance(2, event, 1).expect("a valid event");
        assert_eq!(status.standby(), (kept, true), "{event:?}");
    }
    status.advance(1, Event::Destroy, 2).expect("a valid event");
    assert_eq!(status.standby(), (Some(2), false), "the machine is turned off then");
    status.restart(StopReason::SystemReset, 3);
    let root = &status.cells[0];
    assert!(status.is_restarted());
    assert_eq!((root.starts.load(Relaxed), root.changed.load(Relaxed)), (1, 3));
    assert_eq!(root.condition().stop_reason, StopReason::SystemReset);
    status.advance(2, Event::Destroy, 4).expect("a valid event");
    assert!(status.has_no_cells());
}

#[test]
fn the_watchdog_timeout_is_in_ticks() {
    assert_eq!(watchdog_ticks(&read(&press()), 62_500_000), 3_125_000);
    let mut endless = press();
    endless.watchdog_milliseconds = u32::MAX;
    assert!(watchdog_ticks(&read(&endless), u64::MAX) > 0);
}

#[test]
fn a_cell_sees_only_features_without_state_that_it_would_leave() {
    let all = u64::MAX;
    // ID_AA64PFR1: no memory tagging (MTE), no streaming mode (SME).
    assert_eq!(carried(4, 1, all), 0xff);
    // ID_AA64PFR0: no SVE, RAS, AMU, MPAM, EL2, EL3; CSV2 is at most 1.
    assert_eq!(carried(4, 0, all), 0xf10f_0000_0fff_00ff);
    assert_eq!(carried(4, 0, 0x1100_0000_0100_0022), 0x1100_0000_0100_0022, "as on ARMv8.0");
    // ID_AA64DFR0: no profiling, trace or branch records.
    assert_eq!(carried(5, 0, all) >> 32, 0xf0);
    // Reserved registers, ID_AA64ZFR0, ID_AA64SMFR0, and whatever comes.
    for (crm, op2) in [(4, 2), (4, 4), (4, 5), (5, 1), (6, 3), (7, 3), (7, 4)] {
        assert_eq!(carried(crm, op2, all), 0, "{crm} {op2}");
    }
}
