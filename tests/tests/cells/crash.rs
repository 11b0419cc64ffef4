// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root panics while a Linux cell measures: the cell continues, and its later measurements are read out of
//! the simulated machine's memory. The driver of this test is `crates/domains/cells/examples/linux_agent.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use rampart_agent::{AgentCommand, AgentHandle};
use rampart_bench::sim::{Architecture, Loss, Sim, SimOptions};
use rampart_model::{Batch, MeterEvent, Nanos, Phase};
use rampart_tests::hypervisor::{BEGIN, archive};
use rampart_tests::physical::{lines_of_cell, region};
use rampart_tests::programs::{beside_others, directory};

const RUN: &str = "exec ./linux_agent crash /boot/vmlinuz-$(uname -r) rampart-meter";

/// Time limit for the machine after the panic.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn a_linux_cell_survives_a_root_panic() {
    survives_for(10);
}

#[test]
#[ignore = "takes more than a minute; make test-long runs it"]
fn a_linux_cell_survives_a_root_panic_for_a_minute() {
    survives_for(60);
}

/// Boots this machine with this memory in MiB, which stays for `after_panic`, and with changed options, and runs a script in
/// it, with the archive on its standard input, until it prints the figure `last`. Returns the lines that it has printed, and the handle of the script, which kills it when dropped.
pub(crate) fn run_until(
    machine: &str,
    (script, archive): (&str, &[u8]),
    last: &str,
    mebibytes: u64,
    after_panic: Duration,
    change: fn(&mut SimOptions),
) -> (Sim, AgentHandle, Vec<String>) {
    let architecture = Architecture::named(machine).expect("known");
    let image = Sim::image(architecture, &mut |_| ()).expect("an image");
    let meter = directory().join("aarch64/rampart-meter");
    let mut options = SimOptions::new(architecture, meter, None).with_cpus(4);
    options.mebibytes = mebibytes;
    options.append = Some("mem=768M iomem=relaxed".to_owned());
    options.after_panic = after_panic;
    change(&mut options);
    let machine = Sim::boot(image, &options).expect("a machine");
    let command = AgentCommand::new(["bash", "-c", &[BEGIN, script].concat()]);
    let mut program = machine.agent().spawn(&command).expect("started");
    program.stdin.write_all(archive).expect("copied");
    drop(program.stdin);
    let last = format!("figure {last}");
    let mut written = Vec::new();
    for line in BufReader::new(program.stdout).lines() {
        let Ok(line) = line else { break };
        let is_last = line.starts_with(&last);
        written.push(line);
        if is_last {
            break;
        }
    }
    (machine, program.handle, written)
}

/// A machine whose root has panicked while its cells run.
pub(crate) struct CrashedRoot {
    machine: Sim,
    written: Vec<String>,
    /// Physical start and size of the region that a cell's agent writes.
    region: (u64, u64),
}

impl CrashedRoot {
    /// Boots a machine and runs a script in it, which prints `figure to the root: START+BYTES`, then the figure
    /// `last`, and then makes the root panic.
    pub(crate) fn run(script: &str, last: &str) -> Self {
        let (machine, _script, written) = run_until(
            "aarch64",
            (script, &archive(&[BEGIN, script].concat())),
            last,
            1280,
            LIMIT,
            |_| (),
        );
        let mut crashed = Self {
            machine,
            written,
            region: (0, 0),
        };
        crashed.region = region(crashed.figure("to the root"));
        let lost = crashed.machine.wait_lost(Duration::from_secs(120));
        assert!(
            matches!(lost, Some((Loss::Panicked, _))),
            "{lost:?}: {:#?}",
            crashed.written
        );
        crashed
    }

    /// Returns a figure that the script printed.
    fn figure(&self, name: &str) -> &str {
        let prefix = format!("figure {name}: ");
        let found = self
            .written
            .iter()
            .find_map(|line| line.strip_prefix(&prefix));
        found.unwrap_or_else(|| panic!("no {name}: {:#?}", self.written))
    }

    /// Reads the complete lines that programs of the cell have printed, from the machine's memory.
    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        lines_of_cell(&self.machine, self.region)
    }
}

/// Crashes the root and checks that this number of one-second batches is measured afterwards, without a gap.
fn survives_for(seconds: usize) {
    let _machine = beside_others();
    let crashed = CrashedRoot::run(RUN, "batches before the panic");
    let before: usize = crashed
        .figure("batches before the panic")
        .parse()
        .expect("a number");
    let begin = Instant::now();
    let batches = loop {
        let batches = batches(&crashed);
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

/// Returns the batches of the cell's meter.
fn batches(crashed: &CrashedRoot) -> Vec<Batch> {
    let batch = |line: &Vec<u8>| match serde_json::from_slice(line) {
        Ok(MeterEvent::Batch(batch)) if batch.phase == Phase::Measured => Some(batch),
        _ => None,
    };
    crashed.lines().iter().filter_map(batch).collect()
}
