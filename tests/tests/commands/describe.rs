// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart cell describe` on device trees of other machines: QEMU's `virt`, from QEMU itself, and real boards,
//! from Debian's kernel packages. The expected values are from the boards' reference manuals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rampart_tests::documents::assert_fits;
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{apt, cache, fetched, newest, unpack};
use rampart_tests::programs::{exit_code, left_out, rampart, stdout};
use serde_json::Value;

/// A board, with values from its reference manual.
struct Board {
    /// Device tree, below the directory of the kernel's release in the package.
    file: &'static str,
    /// Version of the GIC, and address of GICD.
    controller: (u64, u64),
    /// MPIDR affinities of the CPUs.
    cpus: &'static [u64],
    /// Address of a serial port, and its interrupt.
    serial: (u64, u64),
    /// Part of an expected finding.
    finding: &'static str,
}

const BOARDS: [Board; 6] = [
    Board {
        file: "freescale/imx8mp-evk.dtb",
        controller: (3, 0x3880_0000),
        cpus: &[0, 1, 2, 3],
        serial: (0x3089_0000, 27 + 32),
        finding: "share them",
    },
    Board {
        file: "xilinx/zynqmp-zcu102-rev1.0.dtb",
        controller: (2, 0xf901_0000),
        cpus: &[0, 1, 2, 3],
        serial: (0xff00_0000, 21 + 32),
        finding: "share",
    },
    Board {
        file: "broadcom/bcm2711-rpi-4-b.dtb",
        controller: (2, 0xff84_1000),
        cpus: &[0, 1, 2, 3],
        serial: (0xfe20_1000, 121 + 32),
        finding: "PSCI",
    },
    Board {
        file: "nvidia/tegra210-p3450-0000.dtb",
        controller: (2, 0x5004_1000),
        cpus: &[0, 1, 2, 3],
        serial: (0x7000_6000, 36 + 32),
        finding: "share",
    },
    Board {
        file: "ti/k3-am654-base-board.dtb",
        controller: (3, 0x180_0000),
        cpus: &[0, 1, 0x100, 0x101],
        serial: (0x280_0000, 192 + 32),
        finding: "ITS",
    },
    Board {
        file: "ti/k3-j721e-common-proc-board.dtb",
        controller: (3, 0x180_0000),
        cpus: &[0, 1],
        serial: (0x280_0000, 192 + 32),
        finding: "share them",
    },
];

/// Only newer kernels have its device tree.
const RASPBERRY_PI_5: Board = Board {
    file: "broadcom/bcm2712-rpi-5-b.dtb",
    controller: (2, 0x10_7fff_9000),
    cpus: &[0, 0x100, 0x200, 0x300],
    serial: (0x10_7d00_1000, 121 + 32),
    finding: "share",
};

fn describe(tree: &Path, more: &[&str]) -> String {
    let state = tempfile::tempdir().expect("a directory");
    let tree = tree.to_str().expect("a path");
    let arguments = [&["cell", "describe", "--tree", tree], more].concat();
    let output = rampart(state.path(), &arguments)
        .finish()
        .expect("rampart starts");
    stdout(&output, 0)
}

fn document(tree: &Path) -> Value {
    let text = describe(tree, &["--json"]);
    assert_eq!(text, describe(tree, &["--json"]), "two runs differ");
    let document = serde_json::from_str(&text).expect("json");
    assert_fits("cell-description", &document);
    document
}

fn affinities(document: &Value) -> Vec<u64> {
    let cpus = document["cpus"].as_array().expect("CPUs");
    cpus.iter()
        .filter_map(|cpu| cpu["mpidr"].as_u64())
        .collect()
}

fn findings(document: &Value) -> String {
    serde_json::to_string_pretty(&document["findings"]).expect("json")
}

/// Returns the device whose first range begins at this address.
fn device(document: &Value, address: u64) -> &Value {
    let devices = document["devices"].as_array().expect("devices");
    devices
        .iter()
        .find(|device| device["ranges"][0]["start"] == address)
        .unwrap_or_else(|| panic!("nothing at {address:#x}"))
}

#[test]
fn describes_the_machine_of_qemu() {
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("virt.dtb");
    let machine = "virt,virtualization=on,gic-version=3,its=off,dumpdtb=";
    let output = Command::new("qemu-system-aarch64")
        .args(["-M", &format!("{machine}{}", file.display())])
        .args(["-cpu", "cortex-a57", "-smp", "4", "-m", "1024"])
        .finish()
        .expect("qemu-system-aarch64 starts");
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let document = document(&file);
    assert_eq!(affinities(&document), [0, 1, 2, 3]);
    assert_eq!(document["memory"][0]["start"], 0x4000_0000_u64);
    let controller = &document["interrupt-controller"];
    assert_eq!(controller["version"], 3, "{controller}");
    assert_eq!(controller["redistributors"][0]["start"], 0x080a_0000_u64);
    assert_eq!(device(&document, 0x900_0000)["interrupts"][0]["number"], 33);
    // Eight virtio devices share each page.
    let findings = findings(&document);
    assert!(findings.contains("/virtio_mmio@a000200"), "{findings}");
    // The four interrupt pins of the PCI slots, from `interrupt-map`, and the windows of the bridge.
    let bridge = document["devices"].as_array().expect("devices");
    let bridge = bridge
        .iter()
        .find(|device| device["path"] == "/pcie@10000000")
        .expect("the PCI bridge");
    let pins: Vec<u64> = bridge["interrupts"]
        .as_array()
        .expect("interrupts")
        .iter()
        .filter_map(|pin| pin["number"].as_u64())
        .collect();
    assert_eq!(pins, [35, 36, 37, 38]);
    let windows = bridge["ranges"].as_array().expect("ranges");
    let is_window = |range: &&Value| range["purpose"] == "pci-window";
    assert_eq!(windows.iter().filter(is_window).count(), 3, "{bridge:#}");

    // With /proc/iomem of a Linux with mem=768M.
    let iomem = location.path().join("iomem");
    fs::write(
        &iomem,
        "40000000-6fffffff : System RAM\n  40210000-4128ffff : Kernel code\n",
    )
    .expect("written");
    let text = describe(&file, &["--iomem", iomem.to_str().expect("a path")]);
    assert!(
        text.contains("reserved for cells: 0x70000000-0x7fffffff"),
        "{text}"
    );
}

/// Unpacks the device trees of a kernel, and returns their directory, which is named after its release.
fn unpacked(package: &Path, to: &Path) -> PathBuf {
    unpack(package, &["*.dtb"], to);
    let all = to.join("usr/lib");
    let release = fs::read_dir(&all).expect("device trees").flatten().next();
    release.expect("a release").path()
}

fn assert_described(directory: &Path, board: &Board) {
    let document = document(&directory.join(board.file));
    let name = board.file;
    let controller = &document["interrupt-controller"];
    assert_eq!(
        controller["version"], board.controller.0,
        "{name}: {controller}"
    );
    assert_eq!(
        controller["distributor"]["start"], board.controller.1,
        "{name}"
    );
    assert_eq!(affinities(&document), board.cpus, "{name}");
    let serial = device(&document, board.serial.0);
    let number = &serial["interrupts"][0]["number"];
    assert_eq!(*number, board.serial.1, "{name}: {serial:#}");
    let findings = findings(&document);
    let text = describe(&directory.join(name), &[]);
    assert!(
        findings.contains(board.finding) || text.contains(board.finding),
        "{name}: no {:?} in {findings}",
        board.finding
    );
    let devices = document["devices"].as_array().expect("devices");
    let clocked = |device: &&Value| {
        let references = device["references"].as_array().expect("references");
        references.iter().any(|one| one["property"] == "clocks")
    };
    assert!(devices.iter().any(|device| clocked(&device)), "{name}");
}

#[test]
fn describes_real_boards() {
    let archives = cache().join("archives");
    let package = newest(&archives, "linux-image-6.1").expect("a kernel of Debian 12");
    let location = tempfile::tempdir().expect("a directory");
    let directory = unpacked(&package, location.path());
    for board in &BOARDS {
        assert_described(&directory, board);
    }
}

/// Returns the newest kernel of Debian 12, which is fetched once.
fn newer_kernel() -> Option<PathBuf> {
    let directory = cache().join("device-trees");
    if newest(&directory, "linux-image-6.12").is_none() {
        let names = apt("apt-cache", &["pkgnames", "linux-image-6.12"], &directory);
        let names = String::from_utf8_lossy(&names.stdout).into_owned();
        let mut kernels: Vec<&str> = names
            .lines()
            .filter(|name| name.contains("+deb12-") && name.ends_with("-rt-arm64"))
            .collect();
        kernels.sort_unstable();
        return fetched(kernels.pop()?, &directory);
    }
    newest(&directory, "linux-image-6.12")
}

#[test]
fn describes_the_raspberry_pi_5() {
    let Some(package) = newer_kernel() else {
        left_out("the Raspberry Pi 5: Debian 12 has no Linux 6.12");
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let directory = unpacked(&package, location.path());
    if directory.join(RASPBERRY_PI_5.file).exists() {
        assert_described(&directory, &RASPBERRY_PI_5);
    } else {
        left_out("the Raspberry Pi 5: the newest kernel of Debian 12 has no device tree for it");
    }
}

/// Returns what the table of docs/boards.md has for a board: GIC, CPUs, SMMU, result.
fn in_words(document: &Value) -> [String; 4] {
    let controller = &document["interrupt-controller"];
    let translates = controller["translation-services"].as_array();
    let its = translates.is_some_and(|all| !all.is_empty());
    let devices = document["devices"].as_array().expect("devices");
    let smmu = |device: &Value| {
        let compatible = device["compatible"].to_string();
        let names = [("arm,smmu-v3", "SMMUv3"), ("arm,mmu-500", "MMU-500")];
        let (_, name) = names.iter().find(|(name, _)| compatible.contains(name))?;
        let state = if device["enabled"] == true {
            ""
        } else {
            ", disabled"
        };
        Some(format!("{name}{state}"))
    };
    let findings = document["findings"].as_array().expect("findings");
    let errors = findings
        .iter()
        .filter(|finding| finding["severity"] == "error");
    let errors: Vec<&str> = errors
        .map(|error| match error["rule"].as_str().expect("a rule") {
            "cell-cpu-start" => "no PSCI",
            _ => error["found"].as_str().expect("a value"),
        })
        .collect();
    [
        format!(
            "v{}{}",
            controller["version"],
            if its { ", ITS" } else { "" }
        ),
        affinities(document).len().to_string(),
        devices
            .iter()
            .find_map(smmu)
            .unwrap_or_else(|| "none".to_owned()),
        match errors.join(", ") {
            none if none.is_empty() => "can be partitioned".to_owned(),
            errors => format!("refused: {errors}"),
        },
    ]
}

#[test]
fn the_document_of_boards_is_true() {
    let Some(package) = newer_kernel() else {
        left_out("the table of docs/boards.md: Debian 12 has no Linux 6.12");
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let directory = unpacked(&package, location.path());
    // QEMU adds PSCI to its tree only for a kernel that it starts itself.
    let (machine, kernel) = ("xlnx-versal-virt", location.path().join("kernel"));
    fs::write(&kernel, [0; 4096]).expect("written");
    let output = Command::new("qemu-system-aarch64")
        .arg("-M")
        .arg(format!(
            "{machine},dumpdtb={}",
            directory.join(machine).display()
        ))
        .args(["-m", "2G", "-kernel"])
        .arg(&kernel)
        .finish()
        .expect("qemu-system-aarch64 starts");
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let mut boards = 0;
    for line in include_str!("../../../docs/boards.md").lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", board, tree, claims @ .., ""] = &fields[..] else {
            continue;
        };
        if claims.len() != 4 {
            continue;
        }
        let Some(tree) = tree
            .strip_prefix('`')
            .and_then(|tree| tree.strip_suffix('`'))
        else {
            continue;
        };
        assert_eq!(
            claims,
            in_words(&document(&directory.join(tree))),
            "{board}"
        );
        boards += 1;
    }
    assert_eq!(boards, 9, "lines of the table");
}
