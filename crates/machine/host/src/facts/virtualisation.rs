// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects whether the machine is a guest, and whether this process is in a container.

use rampart_model::{SIMULATED_BOARD, Virtualisation};

use super::processor::Processor;
use crate::MachineRoot;

/// Hypervisors by the vendor text of CPUID leaf 0x40000000.
const SIGNATURES: [(&str, &str); 10] = [
    ("KVMKVMKVM", "kvm"),
    ("TCGTCGTCGTCG", "qemu"),
    ("VMwareVMware", "vmware"),
    ("Microsoft Hv", "hyper-v"),
    ("XenVMMXenVMM", "xen"),
    ("bhyve bhyve ", "bhyve"),
    ("ACRNACRNACRN", "acrn"),
    ("Jailhouse", "jailhouse"),
    ("VBoxVBoxVBox", "virtualbox"),
    (" lrpepyh  vr", "parallels"),
];

/// Hypervisors by vendor or product in firmware tables.
const PRODUCTS: [(&str, &str); 10] = [
    ("QEMU", "qemu"),
    ("KVM", "kvm"),
    ("Amazon EC2", "kvm"),
    ("Google Compute Engine", "kvm"),
    ("OpenStack", "kvm"),
    ("VMware", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("BHYVE", "bhyve"),
    ("Parallels", "parallels"),
];

pub(super) fn read(root: &MachineRoot, processor: &Processor) -> Virtualisation {
    let signature = signature(root, processor);
    let named = signature.as_deref().map(|text| {
        SIGNATURES
            .iter()
            .find(|(known, _)| text.starts_with(known))
            .map_or_else(|| text.trim().to_owned(), |(_, name)| (*name).to_owned())
    });
    let hypervisor = named
        .or_else(|| root.line("sys/hypervisor/type"))
        .or_else(|| from_device_tree(root))
        .or_else(|| from_firmware(root, processor))
        .or_else(|| is_hidden_qemu(root, processor).then(|| "qemu".to_owned()))
        .or_else(|| processor.is_guest.then(|| from_clock(root)));
    Virtualisation {
        // QEMU's `max` processor on arm64 has no implementer; hardware virtualisation cannot show
        // that.
        emulated: signature
            .as_deref()
            .is_some_and(|text| text.starts_with("TCG"))
            || processor.is_emulated
            || is_hidden_qemu(root, processor),
        hypervisor,
        steal: None,
        container: container(root),
    }
}

/// Returns whether QEMU emulates a machine without the hypervisor flag. Rampart's simulated boards report it on the
/// kernel command line. QEMU does so for machines that host guests; KVM hides itself only on request, and
/// then its times are trusted too little, never too much.
fn is_hidden_qemu(root: &MachineRoot, processor: &Processor) -> bool {
    let line = root.line("proc/cmdline").unwrap_or_default();
    if line.split_whitespace().any(|word| word == SIMULATED_BOARD) {
        return true;
    }
    if !processor.is_x86 {
        return is_qemu_device_tree(root) && starts_processors_by_monitor_call(root);
    }
    !processor.is_guest && root.line("sys/class/dmi/id/sys_vendor").as_deref() == Some("QEMU")
}

/// Returns whether the device tree is that of QEMU's arm64 machine `virt`.
fn is_qemu_device_tree(root: &MachineRoot) -> bool {
    root.line("proc/device-tree/compatible")
        .is_some_and(|names| names.split('\0').any(|name| name == "linux,dummy-virt"))
}

/// Returns whether the kernel starts processors (PSCI) with the secure monitor's instruction instead of
/// the hypervisor's. On QEMU that means an emulated EL2 (`virtualization=on`): KVM guests could not
/// have one before Linux 6.16 (QEMU, hw/arm/virt.c; Linux,
/// Documentation/devicetree/bindings/arm/psci.yaml).
fn starts_processors_by_monitor_call(root: &MachineRoot) -> bool {
    root.line("proc/device-tree/psci/method").as_deref() == Some("smc")
}

/// Returns the hypervisor's name from the running processor.
fn signature(root: &MachineRoot, processor: &Processor) -> Option<String> {
    (root.is_system() && processor.is_guest)
        .then(read_cpuid_signature)
        .flatten()
        .filter(|text| !text.is_empty())
}

#[cfg(target_arch = "x86_64")]
fn read_cpuid_signature() -> Option<String> {
    let leaf = core::arch::x86_64::__cpuid(0x4000_0000);
    let bytes: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8(bytes).ok()
}

#[cfg(not(target_arch = "x86_64"))]
fn read_cpuid_signature() -> Option<String> {
    None
}

fn from_device_tree(root: &MachineRoot) -> Option<String> {
    if let Some(compatible) = root.line("proc/device-tree/hypervisor/compatible") {
        // `xen,xen`, `linux,kvm`: vendor and name, several separated by NUL bytes.
        let first = compatible.split('\0').next().unwrap_or_default();
        return first.split(',').next_back().map(str::to_owned);
    }
    is_qemu_device_tree(root).then(|| "qemu".to_owned())
}

fn from_firmware(root: &MachineRoot, processor: &Processor) -> Option<String> {
    // Google and Amazon offer bare metal under the same vendor name, without the hypervisor flag.
    // arm64 never has that flag.
    if processor.is_x86 && !processor.is_guest {
        return None;
    }
    let texts: Vec<String> = ["sys_vendor", "product_name", "board_vendor"]
        .iter()
        .filter_map(|file| root.line(&format!("sys/class/dmi/id/{file}")))
        .collect();
    if texts.iter().any(|text| text == "Microsoft Corporation")
        && texts.iter().any(|text| text == "Virtual Machine")
    {
        return Some("hyper-v".to_owned());
    }
    PRODUCTS
        .iter()
        .find(|(known, _)| texts.iter().any(|text| text.starts_with(known)))
        .map(|(_, name)| (*name).to_owned())
}

/// Detects a hypervisor by the clock that it offers.
fn from_clock(root: &MachineRoot) -> String {
    let clocks = root
        .line("sys/devices/system/clocksource/clocksource0/available_clocksource")
        .unwrap_or_default();
    let name = if clocks.contains("kvm-clock") {
        "kvm"
    } else if clocks.contains("hyperv") {
        "hyper-v"
    } else if clocks.contains("xen") {
        "xen"
    } else {
        "unknown"
    };
    name.to_owned()
}

/// Returns the manager of the container of this process.
pub(crate) fn container(root: &MachineRoot) -> Option<String> {
    if sees_whole_machine(root) {
        // The files below may be left from an image: file systems of machines are made from images
        // of containers too.
        return None;
    }
    if root.exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    if root.exists(".dockerenv") {
        return Some("docker".to_owned());
    }
    // The container interface of systemd (systemd.io/CONTAINER_INTERFACE).
    if let Some(word) = root.line("run/systemd/container") {
        return Some(word);
    }
    let groups = root.text("proc/1/cgroup")?;
    ["kubepods", "docker", "libpod", "lxc", "containerd"]
        .into_iter()
        .find(|word| groups.contains(word))
        .map(str::to_owned)
}

/// Returns whether this process is in the first PID namespace, where kernel threads are visible, and
/// has the root file system of the first process.
fn sees_whole_machine(root: &MachineRoot) -> bool {
    // Another user can read the mounts of the first process but not its namespaces.
    let root_mount = |process: &str| {
        root.text(&format!("proc/{process}/mountinfo"))?
            .lines()
            .find(|line| line.split(' ').nth(4) == Some("/"))
            .map(str::to_owned)
    };
    root.line("proc/2/comm").as_deref() == Some("kthreadd")
        && root_mount("1").is_none_or(|first| root_mount("self").as_ref() == Some(&first))
}
