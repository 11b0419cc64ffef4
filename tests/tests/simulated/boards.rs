// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated boards, with the device tree of the board: what docs/boards.md says that was run.

use std::path::PathBuf;
use std::time::Duration;

use rampart_model::Evaluation;
use rampart_tests::hypervisor::assert_nothing_failed;
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{alone, directory, stdout};
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

/// After the first steps, a Linux cell and a hostile one get clocks from the root
/// (`crates/domains/cells/examples/scmi_agent.rs`).
#[test]
fn the_first_cell_on_a_board() {
    let hypervisor = directory().join("hypervisor");
    let files = ["scmi_agent", "rampart-cell-scmi-hostile"].map(|name| hypervisor.join(name));
    let files = [&files[..], &[directory().join("aarch64/rampart-meter")]].concat();
    let clocks = "grep -qw clk_ignore_unused /proc/cmdline && exit 9; rampart cell enable; \
        mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug; \
        modules=$(modprobe --all --show-depends --ignore-install i2c-imx spi-imx | sed -n 's/^insmod //p'); \
        ./scmi_agent run /boot/vmlinuz-$(uname -r) rampart-meter rampart-cell-scmi-hostile $modules || echo FAILED; \
        rampart cell disable; ";
    let text = first_cell("imx8mp", 3, clocks, &files);
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
}

/// Two CPUs, two security states, and memory in two parts.
#[test]
fn the_first_cell_on_a_versal() {
    first_cell("versal", 1, "", &[]);
}

/// Makes the first steps on a board with this last CPU, and then `more` with further files. Returns the output.
fn first_cell(board: &str, last_cpu: u32, more: &str, files: &[PathBuf]) -> String {
    let _alone = alone();
    let steps = first_steps();
    assert!(steps.len() > 6, "{steps:?}");
    let steps = steps.join("; ");
    assert!(steps.contains("--cpus 3"), "{steps}");
    let steps = steps.replace("--cpus 3", &format!("--cpus {last_cpu}"));
    let program = "rampart-cell-irq";
    let file = |name: &str, to: &str| {
        let built = directory().join("hypervisor").join(name);
        format!("{}:{to}", built.display())
    };
    let mut files: Vec<String> = files
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap_or_default();
            format!("{}:/opt/{}", path.display(), name.to_string_lossy())
        })
        .collect();
    files.extend([
        file("rampart.bin", "/usr/lib/firmware/rampart.bin"),
        file(program, &format!("/opt/{program}")),
    ]);
    let files = files.iter().flat_map(|file| ["--file", file.as_str()]);
    // Linux's messages before the first step are those of the board's drivers.
    let script = format!(
        "set -e; cd /opt; dmesg -C; taskset -p -c 0-{last_cpu} $$ >/dev/null; {steps}; {more}\
         rampart check --json | grep '\"hypervisor\"'; dmesg | sed 's/^/log /'; cat /sys/devices/system/cpu/online"
    );
    let output = rampart(&["sim", "--architecture", board, "run", "--own"])
        .args(["--append", "mem=2688M"])
        .args(files)
        .args(["--", "bash", "-c", &script])
        .finish_within(Duration::from_secs(600), Vec::new())
        .expect("rampart starts");
    let text = stdout(&output, 0);
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
    text
}

#[test]
#[ignore = "an evaluation on an emulated board takes eight minutes"]
fn a_board_is_evaluated_with_cells() {
    evaluate("sim:imx8mp");
}

#[test]
#[ignore = "an evaluation on a machine with firmware takes minutes"]
fn a_machine_with_firmware_is_evaluated_with_cells() {
    evaluate("sim:aarch64-firmware");
}

/// Evaluates a bare and a Linux cell beside the host and a task.
fn evaluate(bench: &str) {
    let _alone = alone();
    let location = tempfile::tempdir().expect("a directory");
    let result = location.path().join("result");
    let mut command = rampart(&["evaluate", "--on", bench, "--loads", "idle"]);
    command
        .args(["--domains", "host,task,cell,cell:linux", "--for", "40s"])
        .args(["--meters", "wakeup,irq,mmio", "--show-progress", "none"])
        .arg("--out")
        .arg(&result);
    let output = finish(command);
    let text = std::fs::read_to_string(result.join("evaluation.json"))
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let evaluation: Evaluation = serde_json::from_str(&text).expect("an evaluation");
    assert_eq!(evaluation.machine.architecture, "aarch64");
    assert_measured(&evaluation, &["host", "task", "cell", "cell:linux"], 50);
    // The report of the document, as `make evaluate-sim` shows it.
    let report = finish(rampart(&["report", result.to_str().expect("a path")]));
    assert!(stdout(&report, 0).contains("cell:linux"), "{report:?}");
}
