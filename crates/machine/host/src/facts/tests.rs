// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of complete recorded machines.

use rampart_model::{Machine, PreemptionModel, Severity};

use super::{read_figure_findings, read_machine};
use crate::MachineRoot;

fn recorded(name: &str) -> MachineRoot {
    MachineRoot::at(rampart_recorded::directory(name))
}

#[test]
fn a_virtual_machine() {
    insta::assert_json_snapshot!(read_machine(&recorded("virtual-machine")));
}

#[test]
fn a_simulated_machine() {
    insta::assert_json_snapshot!(read_machine(&recorded("simulated")));
}

#[test]
fn a_laptop_with_two_kinds_of_cores() {
    insta::assert_json_snapshot!(read_machine(&recorded("laptop")));
}

#[test]
fn a_server_with_two_sockets() {
    insta::assert_json_snapshot!(read_machine(&recorded("server")));
}

#[test]
fn a_board_with_a_cache_for_each_cluster() {
    insta::assert_json_snapshot!(read_machine(&recorded("board")));
}

#[test]
fn reads_a_machine_without_files() {
    let directory = tempfile::tempdir().expect("directory");
    let machine = read_machine(&MachineRoot::at(directory.path()));
    assert_eq!(machine.preemption, PreemptionModel::Unknown);
    assert!(machine.topology.online.is_empty());
    assert_eq!(machine.control_groups, "none");
}

/// Reads a machine with only these files.
fn machine_of(files: &[(&str, &str)]) -> Machine {
    let directory = tempfile::tempdir().expect("directory");
    for (file, text) in files {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        std::fs::write(path, text).expect("write");
    }
    read_machine(&MachineRoot::at(directory.path()))
}

/// As the simulated machine: an emulated processor without a hypervisor flag.
#[test]
fn a_qemu_machine_without_a_hypervisor_flag_is_emulated() {
    for (vendor, flags, emulated) in [
        ("QEMU", "fpu svm", true),
        ("QEMU", "fpu svm hypervisor", false),
        ("LENOVO", "fpu svm", false),
    ] {
        let cpuinfo = format!("processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: {flags}\n");
        let machine = machine_of(&[
            ("proc/cpuinfo", &cpuinfo),
            ("sys/class/dmi/id/sys_vendor", vendor),
        ]);
        assert_eq!(
            machine.virtualisation.emulated, emulated,
            "{vendor}, {flags}"
        );
    }
}

#[test]
fn a_simulated_board_is_emulated() {
    for (line, emulated) in [
        ("console=ttymxc1 rampart_sim.emulated quiet", true),
        ("console=ttymxc1 quiet", false),
        ("rampart_sim.emulated=0", false),
    ] {
        let machine = machine_of(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n",
            ),
            (
                "proc/device-tree/compatible",
                "fsl,imx8mp-evk\0fsl,imx8mp\0",
            ),
            ("proc/cmdline", line),
        ]);
        assert_eq!(machine.virtualisation.emulated, emulated, "{line}");
        let hypervisor = machine.virtualisation.hypervisor.as_deref();
        assert_eq!(hypervisor, emulated.then_some("qemu"), "{line}");
    }
}

/// As the simulated arm64 machine: QEMU with EL2.
#[test]
fn a_qemu_machine_that_can_host_guests_is_emulated() {
    for (compatible, method, emulated) in [
        ("linux,dummy-virt\0", "smc\0", true),
        ("linux,dummy-virt\0", "hvc\0", false),
        ("raspberrypi,4-model-b\0brcm,bcm2711\0", "smc\0", false),
    ] {
        let machine = machine_of(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd07\n",
            ),
            ("proc/device-tree/compatible", compatible),
            ("proc/device-tree/psci/method", method),
        ]);
        assert_eq!(
            machine.virtualisation.emulated, emulated,
            "{compatible}, {method}"
        );
    }
}

#[test]
fn reads_files_with_invalid_content() {
    let directory = tempfile::tempdir().expect("directory");
    for (file, text) in [
        ("sys/devices/system/cpu/online", "0-1"),
        ("sys/devices/system/cpu/isolated", "7-3"),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "-5Q"),
        ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data"),
        (
            "sys/devices/system/cpu/cpu0/cache/index0/level",
            "99999999999",
        ),
        ("proc/cpuinfo", "::::\n\u{0}processor"),
        ("proc/meminfo", "MemTotal: 99999999999999999999999 kB"),
        ("proc/self/mountinfo", " - \n - cgroup"),
        ("proc/sys/kernel/sched_rt_runtime_us", "9223372036854775807"),
        ("proc/sys/kernel/sched_rt_period_us", ""),
        ("proc/config.gz", "not packed"),
    ] {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        std::fs::write(path, text).expect("write");
    }
    let machine = read_machine(&MachineRoot::at(directory.path()));
    assert_eq!(machine.topology.online.len(), 2);
}

#[test]
fn every_figure_finding_has_its_rule_its_values_and_a_fix() {
    for (root, real_time) in [
        ("virtual-machine", "3"),
        ("simulated", "2-3"),
        ("laptop", "2-3"),
        ("server", "2-3"),
        ("board", "2-3"),
    ] {
        let root = recorded(root);
        let real_time = real_time.parse().expect("CPUs");
        let findings = read_figure_findings(&root, &read_machine(&root), &real_time);
        assert!(!findings.is_empty());
        for finding in &findings {
            assert!(finding.rule.is_some(), "{finding}");
            assert!(finding.found.is_some(), "{finding}");
            assert!(finding.expected.is_some(), "{finding}");
            assert!(finding.fix.is_some(), "{finding}");
        }
        let severities: Vec<Severity> = findings.iter().map(|finding| finding.severity).collect();
        assert!(severities.is_sorted_by(|left, right| left >= right));
        let texts: Vec<String> = findings
            .iter()
            .map(|finding| format!("{}: {finding}", finding.severity))
            .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }
}

#[test]
fn reads_the_running_machine() {
    let machine = read_machine(&MachineRoot::system());
    assert!(!machine.topology.online.is_empty());
    assert!(!machine.architecture.is_empty());
}
