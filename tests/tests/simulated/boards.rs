// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated boards, with the device tree of the board: what docs/boards.md says that was run.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rampart_agent::AgentCommand;
use rampart_bench::sim::{Architecture, CopiedFile, Loss, Sim, SimOptions};
use rampart_model::Evaluation;
use rampart_tests::hypervisor::assert_nothing_failed;
use rampart_tests::limited::Limited as _;
use rampart_tests::physical::{lines_of_cell, memory, region};
use rampart_tests::programs::{beside_others, directory, left_out, stdout};
use rampart_tests::simulated::{finish, rampart};

use crate::aarch64::assert_measured;

/// Returns the commands of "Your first cell on your board" in docs/boards.md.
pub(crate) fn first_steps() -> Vec<&'static str> {
    let (_, section) = include_str!("../../../docs/boards.md")
        .split_once("## Your first cell on your board")
        .expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .map(|line| line.split("  #").next().unwrap_or(line).trim_end())
        .collect()
}

/// Time limit for a script, and for a machine after the panic of its kernel.
const LIMIT: Duration = Duration::from_secs(600);
/// The registers of the clocks' gates of the i.MX 8M Plus (its reference manual, 5.1.7.3, CCM_CCGR0 to 190), and those
/// of I2C2 and ECSPI2 among them.
const GATES: u64 = 0x3038_4000;
const GATES_BYTES: u64 = 191 * 0x10;
const GATES_OF_CELL: [usize; 2] = [0x180, 0x80];

/// After the first steps, a Linux cell and a hostile one get clocks from the root, and then the root crashes
/// (`crates/domains/cells/examples/scmi_agent.rs`).
#[test]
fn the_first_cell_on_a_board() {
    let _machine = beside_others();
    let hypervisor = directory().join("hypervisor");
    let files = ["scmi_agent", "rampart-cell-scmi-hostile"].map(|name| hypervisor.join(name));
    let machine = boot("imx8mp", &files);
    let clocks = format!(
        "grep -qw clk_ignore_unused /proc/cmdline && exit 9; rampart cell enable; \
         mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug; {MODULES} \
         ./scmi_agent run /boot/vmlinuz-$(uname -r) /usr/bin/rampart-meter rampart-cell-scmi-hostile $modules \
         || echo FAILED; rampart cell disable; "
    );
    let text = first_cell(&machine, 3, &clocks);
    assert_nothing_failed(&text);
    for wanted in [
        "ok  the root has turned the clocks off",
        "ok  30880000.serial: driver imx-uart",
        "ok  30a30000.i2c: driver imx-i2c",
        "ok  30830000.spi: driver spi_imx",
        "ok  the root counts the uses of the cell",
        "ok  after a stop, the clocks are off",
        "ok  after its end, the clocks are off",
        "ok  hostile, stops: its requests are refused",
        "ok  hostile, fails: its clocks are off",
        "ok  hostile, floods again: destroyed",
        "ok  left",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    clocks_stay_and_requests_fail_after_a_crash_of_the_root(&machine);
}

/// Names the modules of the drivers, with those that they need.
const MODULES: &str = "modules=$(modprobe --all --show-depends --ignore-install i2c-imx spi-imx | sed -n 's/^insmod //p');";

/// The root panics while a cell uses an I2C and an SPI controller, and opens its UART again and again.
fn clocks_stay_and_requests_fail_after_a_crash_of_the_root(machine: &Sim) {
    let gates = || {
        let bytes = memory(machine, GATES, GATES_BYTES);
        let (words, _) = bytes.as_chunks();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    let of_cell = |gates: &Vec<u32>| GATES_OF_CELL.map(|offset| gates[offset / 4]);
    assert_eq!(of_cell(&gates()), [0; 2], "no cell uses these clocks");
    let script = format!(
        "exec 2>&1; cd /opt; rampart cell enable; {MODULES} \
         exec ./scmi_agent crash /boot/vmlinuz-$(uname -r) /usr/bin/rampart-meter $modules"
    );
    let command = AgentCommand::new(["bash", "-c", &script]);
    let mut program = machine.agent().spawn(&command).expect("started");
    let mut place = None;
    let mut printed = Vec::new();
    for line in BufReader::new(program.stdout).lines() {
        let line = line.expect("the machine runs");
        if let Some(text) = line.strip_prefix("figure to the root: ") {
            place = Some(region(text));
        }
        let is_last = line.starts_with("figure before the panic: ");
        printed.push(line);
        if is_last {
            break;
        }
    }
    let place = place.unwrap_or_else(|| panic!("the cell does not run: {printed:#?}"));
    let before = gates();
    assert_eq!(of_cell(&before), [3; 2], "the cell uses these clocks");
    program.stdin.write_all(b"\n").expect("the machine runs");
    let lost = machine.wait_lost(LIMIT);
    assert!(
        matches!(lost, Some((Loss::Panicked, _))),
        "{lost:?}: {printed:#?}"
    );

    // The number of each time that the port was opened, and the result.
    let opened = || -> Vec<(u64, String)> {
        let lines = lines_of_cell(machine, place);
        let lines = lines.iter().map(|line| String::from_utf8_lossy(line));
        let one = |line: std::borrow::Cow<'_, str>| {
            let (number, result) = line.strip_prefix("port ")?.split_once(' ')?;
            Some((number.parse().ok()?, result.to_owned()))
        };
        lines.filter_map(one).collect()
    };
    let last = |opened: &[(u64, String)]| opened.iter().map(|(number, _)| *number).max();
    // What has a higher number began after the panic.
    let at_panic = last(&opened()).unwrap_or(0) + 1;
    let begin = Instant::now();
    let wait_for = |count: u64| {
        loop {
            let opened = opened();
            if last(&opened) >= Some(at_panic + count) {
                return opened;
            }
            assert!(begin.elapsed() < LIMIT / 2, "the cell hangs: {opened:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
    };
    wait_for(1);
    let first = gates();
    let opened = wait_for(6);
    let mut since = opened.iter().filter(|(number, _)| *number > at_panic);
    assert!(
        since.all(|(_, result)| result.starts_with("fails: ")),
        "{opened:?}"
    );
    let after: Vec<u32> = gates();
    assert_eq!(of_cell(&after), of_cell(&before), "clocks in use");
    assert_eq!(after, first, "no clock changes");
}

/// Two CPUs, two security states, and memory in two parts, in the machine that `rampart sim` boots.
#[test]
fn the_first_cell_on_a_versal() {
    let _machine = beside_others();
    let script = script(1, "");
    let mut command = rampart(&["sim", "--architecture", "versal", "run", "--", "bash", "-c"]);
    command.arg(script);
    let output = command.finish_within(LIMIT, Vec::new()).expect("rampart");
    assert_first_cell(&stdout(&output, 0), 1);
}

/// Its interrupt controller is in the last of the 4 GiB: the meter without an operating system has to map it.
#[test]
fn a_versal_is_evaluated_with_a_cell() {
    evaluate("sim:versal", &["host", "cell"], "20s");
}

/// Boots a board with further files in `/opt`.
fn boot(board: &str, more: &[PathBuf]) -> Sim {
    let bin = directory();
    let architecture = Architecture::named(board).expect("known");
    let image = Sim::image(architecture, &mut |_| ()).expect("an image");
    let meter = bin.join("aarch64/rampart-meter");
    let mut options = SimOptions::new(architecture, meter, Some(bin.join("modules")));
    options.after_panic = LIMIT;
    assert!(options.hold_cells(&bin.join("hypervisor"), &image.kernel()));
    options.files.extend(more.iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let there = format!("/opt/{name}");
        CopiedFile {
            here: path.clone(),
            there,
        }
    }));
    Sim::boot(image, &options).expect("a machine")
}

/// Returns the first steps on a board with this last CPU, and then `more`, as a script.
fn script(last_cpu: u32, more: &str) -> String {
    let steps = first_steps();
    assert!(steps.len() > 6, "{steps:?}");
    let steps = steps.join("; ");
    assert!(steps.contains("--cpus 3"), "{steps}");
    let steps = steps.replace("--cpus 3", &format!("--cpus {last_cpu}"));
    // Linux's messages before the first step are those of the board's drivers.
    format!(
        "exec 2>&1; set -e; mkdir -p /opt; cd /opt; dmesg -C; taskset -p -c 0-{last_cpu} $$ >/dev/null; {steps}; {more}\
         rampart check --json | grep '\"hypervisor\"'; dmesg | sed 's/^/log /'; cat /sys/devices/system/cpu/online"
    )
}

/// Makes the first steps on a board with this last CPU, and then `more`. Returns the output.
fn first_cell(machine: &Sim, last_cpu: u32, more: &str) -> String {
    let script = script(last_cpu, more);
    let command = AgentCommand::new(["bash", "-c", &script]);
    let mut program = machine.agent().spawn(&command).expect("started");
    drop(program.stdin);
    let mut text = String::new();
    program
        .stdout
        .read_to_string(&mut text)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    let ended = program.handle.wait(LIMIT).expect("the machine runs");
    assert!(
        ended.is_some_and(|status| status.success()),
        "{ended:?}: {text}"
    );
    assert_first_cell(&text, last_cpu);
    text
}

/// Asserts what the script of the first steps prints.
fn assert_first_cell(text: &str, last_cpu: u32) {
    assert!(
        text.contains("\"hypervisor\": \"qemu\""),
        "a simulated board claims no times: {text}"
    );
    // With two security states the cell's sleeps are exits, its interrupts are not.
    assert!(text.contains("0 of them for interrupts"), "{text}");
    assert!(
        text.trim_end().ends_with(&format!("0-{last_cpu}")),
        "all CPUs are back: {text}"
    );
    let wrong = ["WARNING:", "BUG:", "Oops", "Call trace"];
    assert!(!wrong.iter().any(|word| text.contains(word)), "{text}");
}

#[test]
#[ignore = "an evaluation on an emulated board takes eight minutes"]
fn a_board_is_evaluated_with_cells() {
    evaluate("sim:imx8mp", &["host", "task", "cell", "cell:linux"], "40s");
}

/// The fewest domains and the shortest time that show a cell measured beside the host.
#[test]
fn a_machine_with_firmware_is_evaluated_with_a_cell() {
    if !directory().join("firmware/version").exists() {
        left_out("the evaluation with firmware: scripts/firmware could not build it");
        return;
    }
    evaluate("sim:aarch64-firmware", &["host", "cell"], "20s");
}

#[test]
#[ignore = "an evaluation on a machine with firmware takes minutes"]
fn a_machine_with_firmware_is_evaluated_with_cells() {
    let domains = ["host", "task", "cell", "cell:linux"];
    evaluate("sim:aarch64-firmware", &domains, "40s");
}

/// Evaluates these domains for this time.
fn evaluate(bench: &str, domains: &[&str], time: &str) {
    let _machine = beside_others();
    let location = tempfile::tempdir().expect("a directory");
    let result = location.path().join("result");
    let mut command = rampart(&["evaluate", "--on", bench, "--loads", "idle"]);
    command
        .args(["--domains", &domains.join(","), "--for", time])
        .args(["--meters", "wakeup,irq,mmio", "--show-progress", "none"])
        .arg("--out")
        .arg(&result);
    let output = finish(command);
    let text = std::fs::read_to_string(result.join("evaluation.json"))
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let evaluation: Evaluation = serde_json::from_str(&text).expect("an evaluation");
    assert_eq!(evaluation.machine.architecture, "aarch64");
    assert_measured(&evaluation, domains, 50);
    // The report of the document, as `make evaluate-sim` shows it.
    let report = finish(rampart(&["report", result.to_str().expect("a path")]));
    let last = domains.last().expect("a domain");
    assert!(stdout(&report, 0).contains(last), "{report:?}");
}
