// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root panics while a Linux cell measures: the cell continues, and its later measurements are read out of
//! the simulated machine's memory. The driver of this test is `crates/domains/cells/examples/linux_agent.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rampart_agent::{AgentCommand, recover};
use rampart_bench::sim::{Architecture, Loss, Sim, SimOptions};
use rampart_model::{Batch, MeterEvent, Nanos, Phase};
use rampart_tests::hypervisor::{BEGIN, archive};
use rampart_tests::programs::{beside_others, directory};

const RUN: &str = "exec ./linux_agent crash /boot/vmlinuz-$(uname -r) rampart-meter";

/// Time limit for the machine after the panic.
const LIMIT: Duration = Duration::from_secs(180);

#[test]
fn a_linux_cell_survives_a_root_panic() {
    survives_for(10);
}

#[test]
#[ignore = "takes more than a minute; make test-long runs it"]
fn a_linux_cell_survives_a_root_panic_for_a_minute() {
    survives_for(60);
}

/// Crashes the root and checks that this number of one-second batches is measured afterwards, without a gap.
fn survives_for(seconds: usize) {
    let _machine = beside_others();
    let architecture = Architecture::named("aarch64").expect("known");
    let image = Sim::image(architecture, &mut |_| ()).expect("an image");
    let meter = directory().join("aarch64/rampart-meter");
    let mut options = SimOptions::new(architecture, meter, None).with_cpus(4);
    options.mebibytes = 1280;
    options.append = Some("mem=768M iomem=relaxed".to_owned());
    options.after_panic = LIMIT;
    let machine = Sim::boot(image, &options).expect("a machine");
    let command = AgentCommand::new(["bash", "-c", &[BEGIN, RUN].concat()]);
    let mut program = machine.agent().spawn(&command).expect("started");
    program.stdin.write_all(&archive()).expect("carried");
    drop(program.stdin);
    let mut written = Vec::new();
    for line in BufReader::new(program.stdout).lines() {
        let Ok(line) = line else { break };
        let last = line.starts_with("figure batches before the panic");
        written.push(line);
        if last {
            break;
        }
    }
    let figure = |name: &str| {
        let prefix = format!("figure {name}: ");
        let found = written.iter().find_map(|line| line.strip_prefix(&prefix));
        found.unwrap_or_else(|| panic!("no {name}: {written:#?}"))
    };
    let before: usize = figure("batches before the panic")
        .parse()
        .expect("a number");
    let (start, bytes) = figure("to the root").split_once('+').expect("a place");
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
    let (start, bytes) = (number(start), number(bytes));
    let lost = machine.wait_lost(Duration::from_secs(120));
    assert!(
        matches!(lost, Some((Loss::Panicked, _))),
        "{lost:?}: {written:#?}"
    );
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("memory");
    let begin = Instant::now();
    let batches = loop {
        let arguments = serde_json::json!({ "val": start, "size": bytes, "filename": file });
        let saved = machine.qemu().qmp().execute("pmemsave", arguments);
        saved.expect("the machine's memory");
        let batches = batches(&file);
        if batches.len() >= before + seconds || begin.elapsed() > LIMIT / 2 {
            break batches;
        }
        std::thread::sleep(Duration::from_secs(2));
    };
    assert!(
        batches.len() >= before + seconds,
        "{} batches, {before} of them before the panic",
        batches.len()
    );
    for pair in batches.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        assert_eq!(
            one.at + one.length,
            next.at,
            "nothing is missing between them"
        );
    }
    for batch in &batches {
        assert_eq!(batch.lost, 0, "{batch:?}");
        assert!(batch.series[0].seen.samples > 0, "{batch:?}");
        assert_eq!(batch.length, Nanos::SECOND);
    }
}

/// Returns the batches of the cell's meter from a dump of its memory.
fn batches(memory: &Path) -> Vec<Batch> {
    let bytes = std::fs::read(memory).expect("written");
    let word = |bytes: &[u8]| AtomicU64::new(u64::from_le_bytes(bytes.try_into().expect("eight")));
    let words: Vec<AtomicU64> = bytes.chunks_exact(8).map(word).collect();
    let mut written = Vec::new();
    rampart_ring::stream::leftover(&words, |byte| written.push(byte)).expect("a section");
    let outputs = recover(&written);
    let lines = outputs.values().flat_map(|output| {
        // The last line may be incomplete.
        let end = output.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        output[..end].split(|byte| *byte == b'\n')
    });
    lines
        .filter_map(|line| match serde_json::from_slice(line) {
            Ok(MeterEvent::Batch(batch)) if batch.phase == Phase::Measured => Some(batch),
            _ => None,
        })
        .collect()
}
