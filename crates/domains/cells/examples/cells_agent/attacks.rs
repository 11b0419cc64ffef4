// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that a cell may not do, and their effects: `hypervisor/cells/src/bin/attack.rs`.

use std::time::Instant;

use rampart_cells::device::Device;
use rampart_hypervisor_core::interface::{CellState, ROOT, StopReason};

use crate::support::{
    BEGUN, CODE, CODE_BYTES, Done, FIRST, HYPERVISOR, INTERRUPTS, RESULT, SECOND, TIMEOUT, beside,
    latest_failure, report, state, wait_for_state, wait_until,
};

/// The expected effect of an attack.
#[derive(Clone, Copy)]
enum Outcome {
    /// The cell fails for this reason.
    Fails(StopReason),
    /// The cell ends itself with this reason.
    Ends(StopReason),
    /// The cell continues with this result.
    Survives(u64),
    /// The cell continues without an answer; the root stops it.
    Silent,
}

const NOT_SUPPORTED: u64 = -1_i64 as u64;
const INVALID_PARAMETERS: u64 = -2_i64 as u64;

const ATTACKS: [(u64, &str, Outcome); 19] = [
    (1, "reads outside", Outcome::Fails(StopReason::MemoryRead)),
    (2, "writes outside", Outcome::Fails(StopReason::MemoryWrite)),
    (
        3,
        "executes outside",
        Outcome::Fails(StopReason::MemoryExecute),
    ),
    (4, "sends interrupts to all CPUs", Outcome::Survives(0)),
    (5, "calls the firmware", Outcome::Survives(NOT_SUPPORTED)),
    (6, "spins with everything masked", Outcome::Silent),
    (
        7,
        "faults on its vectors and stack",
        Outcome::Fails(StopReason::MemoryExecute),
    ),
    (
        8,
        "maintains caches by set and way",
        Outcome::Fails(StopReason::SetWay),
    ),
    (9, "sleeps with everything masked", Outcome::Silent),
    (
        10,
        "accesses the interrupt controller",
        Outcome::Survives(0),
    ),
    (
        11,
        "starts the root's CPU",
        Outcome::Survives(INVALID_PARAMETERS),
    ),
    (12, "masks by priority and spins", Outcome::Silent),
    // QEMU emulates no caches and does not check whether the address is mapped.
    (13, "cleans caches outside", Outcome::Survives(0)),
    (14, "faults endlessly", Outcome::Silent),
    (
        15,
        "writes the auxiliary control register",
        Outcome::Fails(StopReason::SystemRegister),
    ),
    (
        16,
        "turns the system off",
        Outcome::Ends(StopReason::SystemOff),
    ),
    (
        17,
        "resets the system",
        Outcome::Ends(StopReason::SystemReset),
    ),
    (
        18,
        "sleeps in an interrupt that no other preempts",
        Outcome::Silent,
    ),
    (19, "calls the hypervisor endlessly", Outcome::Silent),
];

/// Returns whether the latest failure has this reason, is complete, and has the address of the
/// program.
fn is_recorded(device: &Device, cell: u32, reason: StopReason) -> bool {
    let Some(record) = latest_failure(device, cell) else {
        return false;
    };
    let outside = reason == StopReason::MemoryExecute;
    let inside = (CODE..CODE + CODE_BYTES).contains(&record.program_counter);
    record.cpu == SECOND.cpu()
        && record.reason == u32::from(reason)
        && (outside || inside)
        && (!outside || record.guest_address & !0xfff == HYPERVISOR.0)
}

fn attack(device: &Device, number: u64, name: &str, outcome: Outcome, program: &[u8]) -> Done {
    let page = SECOND.page();
    let begun = page.word(BEGUN);
    let cell = SECOND.start(device, number, program)?;
    wait_until(TIMEOUT, || page.word(BEGUN) != begun);
    match outcome {
        Outcome::Fails(reason) | Outcome::Ends(reason) => {
            let wanted = match outcome {
                Outcome::Fails(_) => CellState::Failed,
                _ => CellState::Stopped,
            };
            let reached = wait_for_state(device, cell, wanted)?;
            let found = state(device, cell);
            report(
                reached && found.1 == reason,
                &format!("{name}: poll reports {found:?}"),
            );
            if let Outcome::Fails(_) = outcome {
                report(
                    is_recorded(device, cell, reason),
                    &format!("{name}: recorded"),
                );
            }
        }
        Outcome::Survives(result) => {
            let from = page.word(INTERRUPTS);
            let alive = wait_until(TIMEOUT, || page.word(INTERRUPTS) > from + 3);
            let found = page.word(RESULT);
            let state = state(device, cell);
            let what = format!("{name}: alive {alive}, result {found:#x}, {state:?}");
            report(alive && found == result, &what);
        }
        Outcome::Silent => {
            // The other cell counts the milliseconds.
            let other = FIRST.page();
            let from = other.word(INTERRUPTS);
            wait_until(TIMEOUT, || other.word(INTERRUPTS) > from + 100);
            report(
                state(device, cell).0 == CellState::Running,
                &format!("{name}: runs"),
            );
        }
    }
    let begin = Instant::now();
    device.destroy(cell)?;
    let took = begin.elapsed();
    report(
        is_back(device, SECOND.cpu())?,
        &format!("{name}: its CPU is back after {took:?}"),
    );
    let stops = stops_of_root()?;
    let what = format!("{name}: {stops} interrupts that stop a CPU of the root");
    report(stops == 0, &what);
    Ok(())
}

/// Returns whether the CPU belongs to the root, and whether a thread runs on it.
fn is_back(device: &Device, cpu: usize) -> Result<bool, Box<dyn std::error::Error>> {
    let owner = device.status()?.get().cpus[cpu].cell();
    let runs_there = std::thread::spawn(move || {
        // SAFETY: the set lives on this stack and has room for the CPU; the calls change only this thread.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
                && libc::sched_getcpu() == cpu as i32
        }
    });
    Ok(owner == ROOT && runs_there.join().is_ok_and(|runs| runs))
}

/// Returns how many of the software interrupts 2 and 3 Linux has taken on all CPUs: they stop a CPU, so that Linux
/// sends none while it runs (arch/arm64/kernel/smp.c, `enum ipi_msg_type`).
fn stops_of_root() -> Result<u64, Box<dyn std::error::Error>> {
    let counts = std::fs::read_to_string("/proc/interrupts")?;
    let is_stop = |line: &&str| line.contains("CPU stop");
    let lines: Vec<&str> = counts.lines().filter(is_stop).collect();
    if lines.is_empty() {
        return Err("/proc/interrupts has no interrupts that stop a CPU".into());
    }
    let numbers = |line: &&str| -> u64 {
        let words = line.split_whitespace().skip(1);
        words.map_while(|word| word.parse::<u64>().ok()).sum()
    };
    Ok(lines.iter().map(numbers).sum())
}

/// Runs all attacks one after the other, each in a new cell.
pub(crate) fn all(device: &Device, program: &[u8]) -> Done {
    for (number, name, outcome) in ATTACKS {
        beside(device, name, || {
            attack(device, number, name, outcome, program)
        });
    }
    Ok(())
}
