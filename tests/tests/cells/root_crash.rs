// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root's kernel panics while a cell runs: the cell continues, and its later records are read out of the
//! simulated machine's memory.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rampart_agent::AgentCommand;
use rampart_bench::sim::{Architecture, CopiedFile, Loss, Sim, SimOptions};
use rampart_hypervisor_core::interface::{CellState, CpuPower, Header, STATUS_BYTES, Status};
use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Read, Reader};
use rampart_tests::physical::{memory, words};
use rampart_tests::programs::directory;
use zerocopy::FromBytes as _;

/// Addresses that `crates/domains/cells/examples/cells_agent` uses for the hypervisor and for the
/// page of its first cell, whose CPU is the last one.
const HYPERVISOR: u64 = 0x7000_0000;
const PAGE: u64 = 0x7120_0000;
const CPU: usize = 3;
const CELL: usize = 1;
/// `hypervisor/cells/src/lib.rs`.
const INTERRUPTS: usize = 1;
const UNEXPECTED: usize = 4;
const RECORDS: usize = 64;
const RECORD_SECOND: u32 = 1;
/// CNTFRQ_EL0 of QEMU.
const SECOND: u64 = 62_500_000;
/// Factor by which the emulated machine may be slower than its clock on a busy host.
const SLOWNESS: u32 = 5;

/// A record that the cell writes every second.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// CNTVCT_EL0.
    time: u64,
    /// The number of timer interrupts so far.
    interrupts: u64,
}

/// Reads the cell's page.
fn page(sim: &Sim) -> Vec<AtomicU64> {
    words(sim, PAGE, 4096)
}

fn records(page: &[AtomicU64]) -> Vec<Record> {
    let mut reader = Reader::new(&page[RECORDS..]).expect("enough memory for a ring");
    let mut buffer = [0; MAXIMUM_RECORD_BYTES];
    let mut all = Vec::new();
    loop {
        match reader.read(&mut buffer) {
            Read::Record { kind, bytes } => {
                assert_eq!((kind, bytes), (RECORD_SECOND, 24));
                let field = |index: usize| {
                    u64::from_le_bytes(buffer[8 * index..][..8].try_into().expect("8 bytes"))
                };
                all.push(Record {
                    time: field(0),
                    interrupts: field(1),
                });
            }
            Read::Nothing => return all,
            Read::Lost(_) | Read::Began => {}
            Read::NoRing | Read::Damaged => panic!("the cell's records are not a ring"),
        }
    }
}

/// Reads the hypervisor's status pages.
fn status(sim: &Sim) -> Box<Status> {
    let header = memory(sim, HYPERVISOR, size_of::<Header>() as u64);
    let header = Header::read_from_bytes(&header).expect("a header");
    let bytes = memory(sim, HYPERVISOR + header.status, STATUS_BYTES as u64);
    let status = Status::read_from_bytes(&bytes[..size_of::<Status>()]);
    Box::new(status.expect("the status"))
}

/// Boots a machine with the driver and starts the cell.
fn boot() -> Sim {
    let bin = directory();
    let architecture = Architecture::named("aarch64").expect("known");
    let image = Sim::image(architecture, &mut |_| {}).expect("an image");
    let copied = |from: &str, there: &str| CopiedFile {
        here: bin.join("hypervisor").join(from),
        there: there.to_owned(),
    };
    let mut options = SimOptions::new(
        architecture,
        bin.join("aarch64/rampart-meter"),
        Some(bin.join("modules")),
    );
    options.append = Some("mem=768M iomem=relaxed".to_owned());
    options.files = vec![
        copied("rampart.bin", "/usr/lib/firmware/rampart.bin"),
        copied("cells_agent", "/usr/lib/cells/cells_agent"),
        copied("rampart-cell-irq", "/usr/lib/cells/rampart-cell-irq"),
    ];
    // This test ends the machine.
    options.after_panic = Duration::from_secs(3600);
    let sim = Sim::boot(image, &options).expect("a machine");
    let start = AgentCommand::new(["/usr/lib/cells/cells_agent", "start", "/usr/lib/cells"]);
    let started = sim.agent().spawn(&start).expect("a program");
    let ended = started.wait(Duration::from_secs(60)).expect("it ends");
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    sim
}

/// The root's behaviour after its panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// Spins endlessly (kernel.panic = 0).
    Spins,
    /// Requests a restart of the machine from the firmware (kernel.panic = -1).
    Restarts,
}

/// Panics the root and waits until the cell has lived for `seconds` of its own clock afterwards.
pub(super) fn outlives(seconds: u64, afterwards: Afterwards) {
    let sim = boot();
    let timeout = match afterwards {
        Afterwards::Spins => 0,
        Afterwards::Restarts => -1,
    };
    let crash = format!("echo {timeout} > /proc/sys/kernel/panic; echo c > /proc/sysrq-trigger");
    let crash = AgentCommand::new(["sh", "-c", &crash]);
    let _crashed = sim.agent().spawn(&crash).expect("a program");
    let loss = sim.wait_lost(Duration::from_secs(60));
    assert!(matches!(loss, Some((Loss::Panicked, _))), "{loss:?}");

    // The second after the next record began after the panic.
    let at_panic = records(&page(&sim)).len();
    let limit = Duration::from_secs(seconds + 10) * SLOWNESS;
    let wait_for = |wanted: &dyn Fn(&[Record]) -> bool| {
        let begin = Instant::now();
        loop {
            let found = records(&page(&sim));
            if wanted(&found) {
                return found;
            }
            assert!(
                begin.elapsed() < limit,
                "after {limit:?} the cell has written: {found:?}"
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    let first = *wait_for(&|found| found.len() > at_panic + 1)
        .last()
        .expect("two records");
    let before = status(&sim);
    let all = wait_for(&|found| {
        found
            .last()
            .is_some_and(|last| last.time - first.time >= seconds * SECOND)
    });
    let after = status(&sim);

    let since: Vec<Record> = all
        .into_iter()
        .filter(|record| record.time >= first.time)
        .collect();
    assert!(
        since.len() as u64 > seconds / 2,
        "one for each second: {since:?}"
    );
    for pair in since.windows(2) {
        // On an emulated machine only a long silence is an error.
        assert!(pair[1].interrupts > pair[0].interrupts, "{pair:?}");
        assert!(pair[1].time > pair[0].time, "{pair:?}");
        let silence = pair[1].time - pair[0].time;
        assert!(
            silence < u64::from(SLOWNESS) * SECOND,
            "a long silence: {pair:?}"
        );
    }
    let page = page(&sim);
    assert!(page[INTERRUPTS].load(Relaxed) > first.interrupts);
    assert_eq!(page[UNEXPECTED].load(Relaxed), 0, "unexpected interrupts");
    assert_eq!(after.cells[CELL].condition().state, CellState::Running);
    assert_eq!(
        before.cpus[CPU].all_exits(),
        after.cpus[CPU].all_exits(),
        "the cell exited to the hypervisor"
    );
    // A restart of the machine would end the cell, so the CPU that requests it is parked instead.
    let parked = (0..CPU).any(|cpu| after.cpus[cpu].cpu_state().power == CpuPower::Off);
    assert_eq!(
        parked,
        afterwards == Afterwards::Restarts,
        "{afterwards:?}: {:#?}",
        sim.qemu().console_tail(60)
    );
    assert!(sim.qemu().ended().is_none(), "the machine was reset");
}
