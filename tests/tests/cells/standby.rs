// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root panics while cells run, and the hypervisor starts it again from a standby. The drivers of this test are
//! `crates/domains/cells/examples/cells_agent/standby.rs` in both roots, and this file after the second panic.

use std::time::{Duration, Instant};

use rampart_bench::sim::SimOptions;
use rampart_tests::hypervisor::{BEGIN, archive_with_command};
use rampart_tests::programs::beside_others;
use serde_json::json;

use crate::crash::run_until;

const KEEP: &str = "# cells_agent reads network_agent.
    cp modules/$(uname -r)/rampart*.ko . && \
    (grep -q ^rampart_net /proc/modules || insmod rampart-net.ko) && \
    exec ./cells_agent keep . /boot/vmlinuz-$(uname -r) rampart-meter";
/// The page of the cell that the second root creates (`NEW` there), and its count of interrupts.
const PAGE: u64 = 0x7120_0000;
const INTERRUPTS: usize = 1;
/// Time limit for the root to boot again, and to check everything.
const LIMIT: Duration = Duration::from_secs(300);

/// The checks of the second root, which it prints to its console.
const WANTED: [&str; 20] = [
    "the root was started again once",
    "the cells run on, and the standby is gone",
    "failures are on record",
    "the first cell has counted on",
    "the first cell: no exit for an interrupt",
    "the root reads only the hypervisor's status pages",
    "the root cannot access a page of the cell",
    "EL2 is not returned to a kernel that is gone",
    "the log of the last kernel is in its memory",
    "the Linux cell runs for longer than the root",
    "the Linux cell has no exits for interrupts",
    "a region has its name",
    "and is written by it",
    "the Linux cell has a console",
    "the networks continue",
    "a frame of the new root returns",
    "the root has its own CPUs",
    "the memory of the destroyed cell is wiped",
    "a new cell: no exit for an interrupt",
    "the Linux cell is stopped",
];

#[test]
fn a_root_that_panics_is_started_again_and_cells_run_on() {
    is_started_again("aarch64", KEEP, |_| ());
}

#[test]
#[ignore = "the same on another machine; make test-long runs it"]
fn a_root_with_a_gicv2_is_started_again_and_cells_run_on() {
    let script = ["export SLEEPING_TRAPS=1\n", KEEP].concat();
    is_started_again("aarch64", &script, |options| options.gicv2 = true);
}

#[test]
#[ignore = "the same on another machine; make test-long runs it"]
fn a_root_with_two_security_states_is_started_again_and_cells_run_on() {
    let script = ["export SLEEPING_TRAPS=1\n", KEEP].concat();
    is_started_again("aarch64", &script, |options| {
        options.two_security_states = true;
    });
}

#[test]
#[ignore = "the same on another machine; make test-long runs it"]
fn a_root_behind_an_smmu_is_started_again_and_cells_run_on() {
    let modules = "export DISK_MODULES=$(for driver in virtio_pci virtio_blk; do \
        modprobe --show-depends $driver | awk '$1 == \"insmod\" { print $2 }'; \
        done | awk '!seen[$0]++')\n";
    let text = is_started_again("aarch64-smmu", &[modules, KEEP].concat(), |_| ());
    let wanted = "the disk of the root behind the SMMU is read";
    assert!(
        text.contains(&format!("ok  {wanted}")),
        "no {wanted:?}: {text}"
    );
}

/// Returns what the second root has printed.
fn is_started_again(on: &str, script: &str, change: fn(&mut SimOptions)) -> String {
    let _machine = beside_others();
    let limit = Duration::from_secs(3600);
    let (machine, _script, written) = run_until(
        on,
        (script, &archive_with_command(&[BEGIN, script].concat())),
        "standby",
        1536,
        limit,
        change,
    );
    let first = written.join("\n");
    assert!(
        !first.contains("FAILED") && first.contains("figure standby"),
        "{first}"
    );

    let begin = Instant::now();
    let console = || machine.qemu().console_tail(2000).join("\n");
    while !console().contains("again finished") {
        let failed = console().contains("Attempted to kill init");
        assert!(!failed, "the first program ended: {}", console());
        assert!(
            begin.elapsed() < LIMIT,
            "the root does not end: {}",
            console()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    let text = console();
    for wanted in WANTED {
        let passed = |line: &str| line.contains("ok  ") && line.contains(wanted);
        assert!(text.lines().any(passed), "no {wanted:?}: {text}");
    }
    assert!(!text.contains("FAILED"), "{text}");

    // It panics too, and no standby is left: its CPUs park, and the new cell goes on.
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("memory");
    let interrupts = || {
        let arguments = json!({ "val": PAGE, "size": 4096, "filename": file });
        let saved = machine.qemu().qmp().execute("pmemsave", arguments);
        saved.expect("QEMU saves memory");
        let bytes = std::fs::read(&file).expect("the saved memory");
        let word = &bytes[8 * INTERRUPTS..][..8];
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    };
    let panics = || console().matches("sysrq triggered crash").count();
    while panics() < 2 {
        assert!(begin.elapsed() < LIMIT, "no second panic: {}", console());
        std::thread::sleep(Duration::from_millis(500));
    }
    let at_panic = interrupts();
    while interrupts() < at_panic + 1000 {
        assert!(
            begin.elapsed() < LIMIT,
            "the new cell does not go on: {}",
            console()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(machine.qemu().ended().is_none(), "the machine was reset");
    // The first root boots without messages.
    assert_eq!(
        console().matches("Booting Linux on physical CPU").count(),
        1,
        "{}",
        console()
    );
    text
}
