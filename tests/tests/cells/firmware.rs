// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor on machines with the firmware of a board, Trusted Firmware-A (`scripts/firmware`): what neither the
//! root nor a cell reaches of it, and cells beside a Linux that it has started. It has the distributor in two security
//! states. Attacks of a hostile root and of cells on the same machines are in the tests with `and_firmware`.

use std::time::Duration;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{Refusal, SmcGrant};
use rampart_hypervisor_core::interface::{Exit, Hypercall, Outcome};
use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_with_firmware,
};

use crate::machine::{
    FIRMWARE, ISB, ONE, SMC, ensure, name, on, on_with, read_register, register, root, system,
    write_register,
};

/// SMCCC_ARCH_FEATURES and SMCCC_VERSION (Arm DEN 0028, 7.3 and 7.2).
const ARCH_FEATURES: u64 = 0x8000_0001;
const CONVENTION_VERSION: u64 = 0x8000_0000;

/// Functions that this firmware has, or that firmware of its kind can have: of the architecture (Arm DEN 0028, 7), of
/// power (DEN 0022, 5), of events (SDEI, DEN 0054, 5.1), random numbers (DEN 0098, 2), secure partitions (DEN 0077), of
/// the vendor and of measurements.
const FUNCTIONS: [u64; 34] = [
    0x8401_0005, // with the hint about vector registers: MIGRATE, SYSTEM_SUSPEND, SDEI_VERSION and EVENT_REGISTER
    0xc401_000e,
    0xc401_0020,
    0xc401_0021,
    0x8000_0002, // SMCCC_ARCH_SOC_ID
    0x8000_8000, // SMCCC_ARCH_WORKAROUND_1, 2 and 3
    0x8000_7fff,
    0x8000_3fff,
    0x8400_0005, // MIGRATE, CPU_FREEZE, CPU_DEFAULT_SUSPEND, NODE_HW_STATE, SYSTEM_SUSPEND, SET_SUSPEND_MODE
    0x8400_000b,
    0xc400_000c,
    0xc400_000d,
    0xc400_000e,
    0x8400_000f,
    0xc400_0010, // STAT_RESIDENCY, SYSTEM_RESET2, MEM_PROTECT, MEM_PROTECT_CHECK_RANGE
    0xc400_0012,
    0x8400_0013,
    0xc400_0014,
    0xc400_0020, // SDEI_VERSION to PE_MASK and PE_UNMASK, EVENT_SIGNAL, PRIVATE_RESET, SHARED_RESET
    0xc400_0021,
    0xc400_0022,
    0xc400_0024,
    0xc400_0025,
    0xc400_0026,
    0xc400_002b,
    0xc400_002c,
    0xc400_002f,
    0xc400_0031,
    0xc400_0032,
    0x8400_0050, // TRNG_VERSION, TRNG_RND
    0xc400_0053,
    0x8400_0063, // FFA_VERSION
    0x8200_ff01, // the vendor's UID
    0xc200_0010, // a count of PMF
];

/// Only what the machine's description grants to the root reaches the firmware, which answers it. An SDEI event would
/// make the firmware continue at an address of its caller at EL2.
#[test]
fn no_other_function_of_the_firmware_is_reached() {
    let range = SmcGrant {
        first: ARCH_FEATURES as u32,
        last: ARCH_FEATURES as u32,
    };
    let system = Blob {
        smcs: vec![range],
        ..system()
    };
    on_with(&FIRMWARE, &system, |machine| {
        machine.expect_launched()?;
        let witness = machine.start_witness()?;
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        let forwarded = |cpu: usize| {
            let counts = &machine.status().cpus[cpu].exits[Exit::SmcForwarded as usize];
            counts.load(std::sync::atomic::Ordering::Relaxed)
        };
        let arguments = [ARCH_FEATURES, CONVENTION_VERSION];
        let [answer, ..] = machine.run(root(1), &[SMC], &arguments)?;
        ensure(answer == 0 && forwarded(1) == 1, || {
            format!("the firmware answers {answer:#x} to the root")
        })?;
        let [answer, ..] = machine.run(ONE.cpu(0), &[SMC], &arguments)?;
        ensure(answer as i64 == -1, || {
            format!("the firmware answers {answer:#x} to a cell")
        })?;
        for function in FUNCTIONS {
            for (who, on) in [("the root", root(1)), ("a cell", ONE.cpu(0))] {
                // Event 0, and an entry address of the caller.
                let [answer, ..] = machine.run(on, &[SMC], &[function, 0, 0x4008_0000, 0, 0])?;
                ensure(answer as i64 == -1, || {
                    format!("{function:#x} of {who} returns {answer:#x}")
                })?;
            }
        }
        machine.manage(Hypercall::CellDestroy, cell)?;
        // No cell is granted those by which the firmware would continue at EL2.
        for (first, last) in [
            (0xc400_0020, 0xc400_0032),
            (0x8400_0000, 0x8400_001f),
            (0xc401_0020, 0xc401_0032),
            (0x83ff_ffff, 0x8400_0000),
        ] {
            let smcs = vec![SmcGrant { first, last }];
            let (outcome, [reason, ..]) = machine.try_create(&Blob { smcs, ..ONE.blob() })?;
            let expected = (Outcome::Refused as i64, Refusal::SmcRange as u64);
            ensure((outcome, reason) == expected, || {
                format!("a cell with {first:#x}: {}, {reason}", name(outcome))
            })?;
        }
        let counts = [1, 2].map(forwarded);
        ensure(counts == [1, 0], || {
            format!("forwarded calls of the root and of the cell: {counts:?}")
        })?;
        machine.turn_on(2)?;
        witness.check()?;
        machine.expect_running()?;
        machine.expect_no_fault()
    });
}

/// A cell cannot mask the management interrupt by priorities, whose scale depends on SCR_EL3.FIQ.
#[test]
fn the_lowest_mask_of_a_cell_follows_the_firmware() {
    on(&FIRMWARE, |machine| {
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        let code = [
            write_register(register::PRIORITY_MASK, 0),
            ISB,
            read_register(register::PRIORITY_MASK, 0),
        ];
        let [mask, ..] = machine.run(ONE.cpu(0), &code, &[0])?;
        let sdei = machine.model.firmware == Some("virt-sdei");
        let expected = if sdei { 0x80 } else { 0xc0 };
        ensure(mask == expected, || {
            format!("ICC_PMR_EL1 is {mask:#x}, expected {expected:#x}")
        })?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(2)
    });
}

const CELLS: &str = r#"
grep 'SMC Calling Convention' /tmp/boot
SLEEPING_TRAPS=1 ./cells_agent cells . attacks pair || echo 'FAILED  cells'
SLEEPING_TRAPS=1 ./cells_agent turns 2 . || echo 'FAILED  turns'
./cells_agent leave 3 || echo 'FAILED  leave'
"#;

#[test]
fn cells_beside_a_linux_that_firmware_started() {
    run("aarch64-firmware");
}

#[test]
fn cells_beside_a_linux_whose_firmware_takes_interrupts() {
    run("aarch64-firmware-sdei");
}

fn run(machine: &str) {
    // BEGIN clears the kernel's log.
    let begin = BEGIN.replace("dmesg -C", "dmesg >/tmp/boot; dmesg -C");
    let script = [&begin, CELLS, END].concat();
    let Some(text) = run_with_firmware(machine, &script, Duration::from_secs(1800)) else {
        return;
    };
    assert_nothing_failed(&text);
    for wanted in [
        // QEMU's own PSCI has version 1.0 of the convention.
        "SMC Calling Convention v1.5",
        "timer: no exit for an interrupt",
        "sleeps with everything masked: its CPU is back",
        "attacks: the other cell is not disturbed",
        "two CPUs, started again: no exit for an interrupt",
        "pair: the other cell is not disturbed",
        "destroyed 2 times",
        "disabled 3 times under load",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:?}: {text}");
}
