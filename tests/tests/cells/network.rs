// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks between the root and a Linux cell, between two Linux cells, and after the root's panic. The driver of
//! these tests is `crates/domains/cells/examples/network_agent.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rampart_agent::{AgentCommand, recover};
use rampart_bench::sim::{Architecture, Loss, Sim, SimOptions};
use rampart_tests::hypervisor::{BEGIN, END, archive, kernel_errors, run_with_hypervisor};
use rampart_tests::programs::{beside_others, directory};

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
    let text = run_with_hypervisor(&script, 1280, Duration::from_secs(600));
    assert!(!text.contains("FAILED"), "{text}");
    for wanted in [
        "ok  root and cell: carrier",
        "ok  root and cell: ping",
        "ok  root and cell: TCP",
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
    let text = run_with_hypervisor(&[BEGIN, bare, END].concat(), 1024, Duration::from_secs(400));
    assert!(!text.contains("FAILED"), "{text}");
    for wanted in [
        "ok  without an operating system: ping",
        "ok  without an operating system: UDP, 50 of 50",
        "ok  hostile 1: its frames were taken and its errors counted",
        "ok  hostile 2: its frames were taken and its errors counted",
        "ok  after the attack: ping",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

/// Time limit for the machine after the panic.
const LIMIT: Duration = Duration::from_secs(180);
/// Rounds of an exchange between the cells after the panic.
const ROUNDS: u64 = 10;

#[test]
fn two_cells_exchange_frames_after_a_root_panic() {
    let _machine = beside_others();
    let architecture = Architecture::named("aarch64").expect("known");
    let image = Sim::image(architecture, &mut |_| ()).expect("an image");
    let meter = directory().join("aarch64/rampart-meter");
    let mut options = SimOptions::new(architecture, meter, None).with_cpus(4);
    options.mebibytes = 1280;
    options.append = Some("mem=768M iomem=relaxed".to_owned());
    options.after_panic = LIMIT;
    let machine = Sim::boot(image, &options).expect("a machine");
    let command = AgentCommand::new(["bash", "-c", &[BEGIN, &run("crash")].concat()]);
    let mut program = machine.agent().spawn(&command).expect("started");
    program.stdin.write_all(&archive()).expect("carried");
    drop(program.stdin);
    let mut written = Vec::new();
    for line in BufReader::new(program.stdout).lines() {
        let Ok(line) = line else { break };
        let last = line.starts_with("figure rounds before the panic");
        written.push(line);
        if last {
            break;
        }
    }
    let prefix = "figure to the root: ";
    let place = written.iter().find_map(|line| line.strip_prefix(prefix));
    let place = place.unwrap_or_else(|| panic!("no place: {written:#?}"));
    let (start, bytes) = place.split_once('+').expect("a place");
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
    let (start, bytes) = (number(start), number(bytes));
    let lost = machine.wait_lost(Duration::from_secs(120));
    assert!(
        matches!(lost, Some((Loss::Panicked, _))),
        "{lost:?}: {written:#?}"
    );
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("memory");
    let rounds = || {
        let arguments = serde_json::json!({ "val": start, "size": bytes, "filename": file });
        let saved = machine.qemu().qmp().execute("pmemsave", arguments);
        saved.expect("the machine's memory");
        rounds(&file)
    };
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

/// Returns the number of the last round from a dump of the memory of a cell's agent.
fn rounds(memory: &Path) -> u64 {
    let bytes = std::fs::read(memory).expect("written");
    let word = |bytes: &[u8]| AtomicU64::new(u64::from_le_bytes(bytes.try_into().expect("eight")));
    let words: Vec<AtomicU64> = bytes.chunks_exact(8).map(word).collect();
    let mut written = Vec::new();
    rampart_ring::stream::leftover(&words, |byte| written.push(byte)).expect("a section");
    let outputs = recover(&written);
    let lines = outputs
        .values()
        .flat_map(|output| output.split(|byte| *byte == b'\n'));
    let round = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        line.strip_prefix("round ")?.parse().ok()
    };
    lines.filter_map(round).max().unwrap_or(0)
}
