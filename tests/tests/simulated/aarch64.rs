// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated arm64 machine with a PREEMPT_RT kernel. Each boot tests much; `machine.rs` tests what does not
//! depend on the architecture.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use rampart_model::{
    Availability, BlockKind, Evaluation, EvaluationPart, MeterKind, Nanos, PreemptionModel,
    Question, Record, SignPath, TransferRecord, VerdictOutcome,
};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::processes::KillAtEnd;
use rampart_tests::programs::{beside_others, directory, exit_code, stderr, stdout};
use rampart_tests::simulated::{MACHINE_LOST, MISSING, finish, rampart};
use rampart_tests::verdicts::{BlocktestResult, find_verdict, transfer_of};
use serde_json::Value;

fn sim(arguments: &[&str]) -> Command {
    rampart(&[&["sim", "--architecture", "aarch64"], arguments].concat())
}

/// Asserts that the programs for arm64 are built; `make test` builds them.
fn assert_programs_built() {
    for name in ["rampart", "rampart-meter"] {
        let path = directory().join("aarch64").join(name);
        assert!(
            path.is_file(),
            "{}: no program to test; run `make build ARCH=aarch64`",
            path.display()
        );
    }
}

/// Checks the kernel, the exception level at its entry, the module, a copied file, and programs.
const INSPECT: &str = r#"
uname -r -v -m
cat /proc/cmdline
cat
dmesg | grep -o 'All CPU(s) started at EL2'
grep -o '^blocksys ' /proc/modules
cat /usr/lib/firmware/test.bin
for program in runc stress-ng cyclictest rtla modprobe; do
    command -v $program >/dev/null || { echo "no $program"; exit 1; }
done
test -d /sys/kernel/tracing/events/osnoise || exit 1
modprobe virtio_net || exit 1
echo to-stderr >&2
exit 7
"#;

#[test]
fn one_machine_runs_measures_blocks_and_reports_its_panic() {
    let _machine = beside_others();
    assert_programs_built();
    let built = finish(sim(&["build"]));
    assert!(stdout(&built, 0).contains("-rt-arm64"), "{built:?}");
    let location = tempfile::tempdir().expect("a directory");
    let firmware = location.path().join("firmware");
    std::fs::write(&firmware, "copied\n").expect("written");
    let file = format!("{}:/usr/lib/firmware/test.bin", firmware.display());
    let mut held = sim(&[
        "up", "--cpus", "3", "--memory", "1024", "--append", "mem=960M", "--file", &file,
    ]);
    let mut held = KillAtEnd(held.stderr(Stdio::piped()).spawn().expect("started"));
    let mut output = BufReader::new(held.0.stderr.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read");
    assert!(line.contains("is up after"), "{line}");
    assert!(
        line.contains("rampart sim shell --architecture aarch64"),
        "{line}"
    );

    let sent = vec![b'~'; 1 << 20];
    let inspected = sim(&["run", "--", "sh", "-c", INSPECT])
        .finish_within(Duration::from_secs(120), sent)
        .expect("rampart starts");
    let text = stdout(&inspected, 7);
    assert!(stderr(&inspected).contains("to-stderr"), "{inspected:?}");
    let without = text.replace('~', "");
    assert_eq!(text.len() - without.len(), 1 << 20, "{without}");
    for part in [
        "PREEMPT_RT",
        "aarch64",
        "isolcpus=managed_irq,domain,1-2 nohz_full=1-2",
        "mem=960M",
        "All CPU(s) started at EL2",
        "blocksys",
        "copied",
    ] {
        assert!(without.contains(part), "no {part} in {without}");
    }

    blocks_reach_only_their_cpu();

    // The kernel has no driver for QEMU's panic device, so the panic is seen in the console.
    let panic = "echo c > /proc/sysrq-trigger; sleep 1000";
    let lost = finish(sim(&["run", "--", "sh", "-c", panic]));
    assert_eq!(exit_code(&lost), MACHINE_LOST, "{lost:?}");
    assert_eq!(ended(&mut held.0).code(), Some(MACHINE_LOST));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("read");
    assert!(rest.contains("kernel panicked"), "{rest}");
    assert!(rest.contains("sysrq triggered crash"), "{rest}");
    assert_eq!(
        exit_code(&finish(sim(&["down"]))),
        MISSING,
        "a machine is up"
    );
}

/// The CPU that the module stops is late, and the other one is not. The blocks are long, because on a busy host an
/// emulated CPU is late by hundreds of milliseconds without them.
fn blocks_reach_only_their_cpu() {
    // The CPUs are isolated, so taskset has to permit them.
    let script = "rmmod blocksys
        insmod /usr/lib/modules/$(uname -r)/extra/blocksys.ko longest_us=1000000 || exit 1
        taskset -c 0-2 rampart blocktest --cpus 1 --watch 1,2 --length 800ms --count 12 \
            --pause 900ms --seed 3 --kind module --json --show-progress none";
    let output = finish(sim(&["run", "--", "sh", "-c", script]));
    let result: Value = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    assert_eq!(result["made"]["kind"], "module");
    let [stopped, other] = [1, 2].map(|cpu| BlocktestResult::of(&result, cpu));
    // The outcome depends on how busy this host is; the figures do not.
    assert!((0.5..1.5).contains(&stopped.transfer()), "{stopped:?}");
    assert!(stopped.p_value() < 0.05, "{stopped:?}");
    assert!(other.transfer() < 0.3, "{other:?}");
}

#[test]
fn reports_missing_programs_with_the_command_that_builds_them() {
    let location = tempfile::tempdir().expect("a directory");
    for name in ["rampart", "rampart-meter"] {
        std::fs::copy(directory().join(name), location.path().join(name)).expect("copied");
    }
    for arguments in [
        &[
            "sim",
            "--architecture",
            "aarch64",
            "run",
            "--own",
            "--",
            "true",
        ][..],
        &["domains", "--on", "sim:aarch64"],
    ] {
        let mut command = Command::new(location.path().join("rampart"));
        command
            .args(arguments)
            .env_remove("RAMPART_METER")
            .stdin(Stdio::null());
        let output = finish(command);
        assert_eq!(exit_code(&output), MISSING, "{output:?}");
        let error = stderr(&output);
        assert!(
            error.contains("install the programs of rampart for aarch64"),
            "{error}"
        );
    }
    let unknown = finish(rampart(&["domains", "--on", "sim:riscv64"]));
    assert_eq!(exit_code(&unknown), 2, "{unknown:?}");
    assert!(
        stderr(&unknown).contains("sim:x86_64, sim:aarch64"),
        "{unknown:?}"
    );
}

#[test]
fn a_command_runs_on_a_bench_given_by_name() {
    let _machine = beside_others();
    assert_programs_built();
    let output = finish(rampart(&[
        "domains",
        "--json",
        "--on",
        "sim:aarch64",
        "--sim-cpus",
        "2",
    ]));
    let domains: Vec<Availability> = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    // Debian's real-time kernel for arm64 is built without KVM.
    for (name, available) in [
        ("host", true),
        ("task", true),
        ("container", true),
        ("vm", false),
    ] {
        let found = domains
            .iter()
            .find(|domain| domain.domain.to_string() == name)
            .unwrap_or_else(|| panic!("no {name} in {domains:?}"));
        assert_eq!(found.available, available, "{found:?}");
    }
}

/// Returns the wakeup record of a domain.
fn wakeup<'e>(evaluation: &'e Evaluation, domain: &str) -> &'e Record {
    let mut records = evaluation.records.iter();
    let found = records
        .find(|record| record.domain == domain && record.settings.meter == MeterKind::Wakeup);
    found.unwrap_or_else(|| panic!("{domain}: {:?}", evaluation.not_measured))
}

/// Checks the first wakeup run of each domain: cells took more than `interrupts` without an exit for one.
pub(crate) fn assert_measured(evaluation: &Evaluation, domains: &[&str], interrupts: u64) {
    for name in domains {
        let record = wakeup(evaluation, name);
        let run = record.runs.first().expect("a run");
        assert!(run.invalid.is_empty(), "{name}: {:?}", run.invalid);
        assert!(record.emulated, "{name}: {record:?}");
        assert!(record.exposure.samples > 0, "{name}: {record:?}");
        let Some(cell) = &run.cell else {
            assert!(!name.starts_with("cell"), "no exits of {name}");
            continue;
        };
        assert_eq!(cell.interrupt_exits, 0, "{name}: {cell:?}");
        assert!(
            cell.interrupts.is_some_and(|count| count > interrupts),
            "{name}: {cell:?}"
        );
    }
}

/// With host, task, container and both kinds of cells at once: blocks reach only their own domain, loads run in
/// cells, no interrupt of a cell causes an exit, and cells continue after a panic of the host's kernel.
#[test]
fn cells_are_measured_with_other_domains_and_survive_a_host_crash() {
    let _machine = beside_others();
    assert_programs_built();
    for part in ["rampart.bin", "rampart-cell-meter"] {
        let path = directory().join("hypervisor").join(part);
        assert!(path.is_file(), "{}: run `make hypervisor`", path.display());
    }
    let location = tempfile::tempdir().expect("a directory");
    let result = location.path().join("result");
    let mut command = rampart(&["evaluate", "--on", "sim:aarch64", "--loads", "idle"]);
    command
        .args([
            "--domains",
            "host,task,container,cell,cell:linux",
            "--for",
            "100s",
        ])
        .args(["--meters", "wakeup,irq,mmio"])
        .args([
            "--disturb",
            "block:host,block:cell,block:cell:linux,cache:cell,cpu:cell:linux,crash:host",
        ])
        .args(["--show-progress", "none", "--out"])
        .arg(&result);
    let output = finish(command);
    let text = std::fs::read_to_string(result.join("evaluation.json"))
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let evaluation: Evaluation = serde_json::from_str(&text).expect("an evaluation");

    let machine = &evaluation.machine;
    assert_eq!(machine.architecture, "aarch64");
    assert_eq!(machine.preemption, PreemptionModel::RealTime);
    assert!(machine.virtualisation.emulated, "{machine:?}");
    let domains = ["host", "task", "container", "cell", "cell:linux"];
    assert_measured(&evaluation, &domains, 100);
    let cell = wakeup(&evaluation, "cell").runs[0].cell.as_ref();
    assert_eq!(cell.expect("its exits").all_exits(), 0, "{cell:?}");

    assert_bare_metal_meters(&evaluation);

    let transferred = |by: &str, watched: &str| {
        transfer_of(find_verdict(
            &evaluation.verdicts,
            Question::Transfer,
            watched,
            by,
        ))
    };
    for cell in ["cell", "cell:linux"] {
        let from_host = transferred("block:host", cell);
        assert!(from_host < 0.3, "{cell}: {from_host}");
    }
    for cell in ["cell", "cell:linux"] {
        let by = format!("block:{cell}");
        let own = transferred(&by, cell);
        assert!((0.5..1.5).contains(&own), "{cell}: {own}");
        for other in ["host", "task", "container", "cell", "cell:linux"] {
            if other != cell {
                let transfer = transferred(&by, other);
                assert!(transfer < 0.3, "{by} in {other}: {transfer}");
            }
        }
        let mut rounds = evaluation.transfers.iter();
        let round = rounds.find(|round| {
            let made = round.disturbance.as_ref();
            made.is_some_and(|made| made.to_string() == by)
        });
        let made = round
            .and_then(|round| round.blocks.as_ref())
            .expect("blocks");
        let kind = if cell == "cell" {
            BlockKind::Cell
        } else {
            BlockKind::Module
        };
        assert_eq!(made.kind, kind, "{by}");
    }

    assert_loads_in_cells(&evaluation);
    let crash = evaluation.crash.expect("a crash");
    assert!(crash.confirmed.is_some(), "{crash:?}");
    let survivor = |name: &str| {
        let mut witnesses = crash.witnesses.iter();
        let cell = witnesses.find(|one| one.domain == name).expect(name);
        assert_eq!(cell.signs, SignPath::Memory, "{cell:?}");
        let lived = cell.lived.expect("a sign of life").0;
        assert!(lived > 5_000_000_000, "{cell:?}");
        let id = format!("crash/{name}/wakeup/crash:host");
        let mut verdicts = evaluation.verdicts.iter();
        let verdict = verdicts
            .find(|verdict| verdict.id == id)
            .expect("a verdict");
        assert_eq!(verdict.outcome, VerdictOutcome::Holds, "{verdict:?}");
        cell.after
    };
    // A cell without an operating system publishes only its last sample.
    assert_eq!(survivor("cell"), None);
    let after = survivor("cell:linux").expect("its records");
    assert!(after.without_gap && after.lost == 0, "{after:?}");
    // There are 250 a second, on a busy host fewer.
    assert!(after.samples > 100, "{after:?}");
}

/// Checks that the meter in the cell made each load, in a valid round.
fn assert_loads_in_cells(evaluation: &Evaluation) {
    for disturbance in ["cache:cell", "cpu:cell:linux"] {
        let of = |round: &&TransferRecord| {
            let by = round.disturbance.as_ref();
            by.is_some_and(|by| by.to_string() == disturbance)
        };
        let rounds: Vec<_> = evaluation.transfers.iter().filter(of).collect();
        assert!(
            rounds.iter().any(|round| round.invalid.is_empty()),
            "{disturbance}: {rounds:?}"
        );
        let loads = rounds.iter().filter_map(|round| round.load.as_ref());
        for stressor in loads.flat_map(|load| &load.stressors) {
            let command = stressor.command.join(" ");
            assert!(command.starts_with("rampart-meter load "), "{command}");
            assert!(
                stressor.failure.is_some() || stressor.cpu_time > Nanos::ZERO,
                "{stressor:?}"
            );
        }
    }
}

/// Checks the meters of a cell without an operating system: samples and no exit for an interrupt there, no record
/// elsewhere, and a reason for each other domain.
fn assert_bare_metal_meters(evaluation: &Evaluation) {
    for meter in [MeterKind::Irq, MeterKind::Mmio] {
        let mut records = evaluation.records.iter();
        let record = records
            .find(|record| record.settings.meter == meter)
            .unwrap_or_else(|| panic!("{meter} in {:?}", evaluation.not_measured));
        assert_eq!(record.domain, "cell");
        assert!(records.all(|record| record.settings.meter != meter));
        assert!(record.exposure.samples > 0, "{record:?}");
        let run = record.runs.first().expect("a run");
        assert!(run.invalid.is_empty(), "{meter}: {:?}", run.invalid);
        let cell = run.cell.as_ref().expect("exits");
        assert_eq!(cell.interrupt_exits, 0, "{meter}: {cell:?}");
        // A sample of `mmio` is 64 reads, each an exit; a sample of `irq` has no exit.
        match meter {
            MeterKind::Irq => assert_eq!(cell.all_exits(), 0, "{cell:?}"),
            _ => assert!(cell.all_exits() >= 64 * record.exposure.samples, "{cell:?}"),
        }
        for domain in ["host", "task", "container", "cell:linux"] {
            let part = EvaluationPart::Meter {
                domain: domain.to_owned(),
                meter,
            };
            let mut gaps = evaluation.not_measured.iter();
            let gap = gaps.find(|gap| gap.part == part).expect("a reason");
            assert!(
                gap.findings[0].what.contains("not measured here"),
                "{gap:?}"
            );
        }
    }
}
