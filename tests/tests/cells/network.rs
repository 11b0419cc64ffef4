// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks between the root and a Linux cell, between two Linux cells, and after the root's panic. The driver of
//! these tests is `crates/domains/cells/examples/network_agent`.

use std::time::{Duration, Instant};

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_with_hypervisor,
};
use rampart_tests::programs::beside_others;

use crate::crash::{CrashedRoot, LIMIT};

/// Loads the network driver, and runs the test's driver.
fn run(word: &str) -> String {
    format!(
        "grep -q ^rampart_net /proc/modules || insmod modules/$(uname -r)/rampart-net.ko || exit 9
./network_agent {word} /boot/vmlinuz-$(uname -r) rampart-meter modules/$(uname -r)/rampart-net.ko || echo 'FAILED  network_agent'
rmmod rampart-net
"
    )
}

#[test]
fn root_and_cells_exchange_frames() {
    let script = [BEGIN, &run("run"), END].concat();
    let text = run_with_hypervisor(&script, Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in [
        "ok  root and cell: carrier",
        "ok  root and cell: ping",
        "ok  root and cell: TCP",
        "ok  ethtool: driver and device",
        "ok  ethtool: link and duplex",
        "ok  ethtool: statistics",
        "ok  ethtool: no link after its end",
        "ok  cell and cell: ping",
        "ok  cell and cell: TCP",
        "ok  cell and cell: ping after a restart",
        "ok  root and cell: no carrier after its end",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log ", "cell "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

#[test]
fn programs_without_an_operating_system_exchange_frames() {
    let bare =
        "grep -q ^rampart_net /proc/modules || insmod modules/$(uname -r)/rampart-net.ko || exit 9
./network_agent bare . 10 || echo 'FAILED  network_agent'
rmmod rampart-net
";
    let text = run_with_hypervisor(&[BEGIN, bare, END].concat(), Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in [
        "ok  without an operating system: ping",
        "ok  without an operating system: UDP, 50 of 50",
        "ok  hostile 1: its frames were taken and its errors counted",
        "ok  hostile 2: its frames were taken and its errors counted",
        "ok  after the attack: ping",
        "ok  two programs: 300 packets returned unchanged",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

/// Rounds of an exchange between the cells after the panic.
const ROUNDS: u64 = 10;

#[test]
fn two_cells_exchange_frames_after_a_root_panic() {
    let _machine = beside_others();
    let crashed = CrashedRoot::run(&run("crash"), "rounds before the panic");
    let rounds = || rounds(&crashed);
    // Rounds that are counted from here on began after the panic.
    let before = rounds() + 1;
    let begin = Instant::now();
    while rounds() < before + ROUNDS {
        assert!(
            begin.elapsed() < LIMIT / 2,
            "{} rounds, {before} of them before the panic",
            rounds()
        );
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Returns the number of the last round that a cell printed.
fn rounds(crashed: &CrashedRoot) -> u64 {
    let round = |line: &Vec<u8>| {
        let line = std::str::from_utf8(line).ok()?;
        line.strip_prefix("round ")?.parse().ok()
    };
    crashed.lines().iter().filter_map(round).max().unwrap_or(0)
}
