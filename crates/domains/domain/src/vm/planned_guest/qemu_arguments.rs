// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds QEMU's arguments for a guest of a plan. Pure.

use std::ffi::OsString;

use rampart_model::CpuSet;

use super::GuestOrder;
use crate::vm::qemu_arguments::memory_object;

/// Properties of the machine and its files that the plan does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facilities {
    /// Whether all memory of the program is locked.
    pub(super) locked: bool,
    /// The memory node that the guest's memory comes from.
    pub(super) node: Option<u32>,
    /// The file format of the disk.
    pub(super) disk_format: &'static str,
}

/// Returns the arguments after those that [`rampart_qemu::Qemu::start`] adds.
pub(super) fn arguments(guest: &GuestOrder, facilities: &Facilities) -> Vec<OsString> {
    let mut list: Vec<OsString> = Vec::new();
    let mut pair = |option: &str, value: OsString| {
        list.push(option.into());
        list.push(value);
    };
    let text = |text: String| OsString::from(text);
    pair(
        "-machine",
        "q35,usb=off,hpet=off,vmport=off,mem-merge=off,memory-backend=memory".into(),
    );
    pair("-accel", "kvm".into());
    let hint = if guest.hint_dedicated {
        ",kvm-hint-dedicated=on"
    } else {
        ""
    };
    pair("-cpu", text(format!("host,pmu=off{hint}")));
    let count = guest.virtual_cpus.len();
    pair(
        "-smp",
        text(format!("{count},sockets=1,cores={count},threads=1")),
    );
    pair("-m", text(format!("{}k", guest.memory_bytes / 1024)));
    let memory = memory_object(
        &guest.memory_bytes.to_string(),
        guest.huge_page,
        guest.is_real_time(),
        facilities.node,
    );
    pair("-object", text(memory));
    if facilities.locked {
        pair("-overcommit", "mem-lock=on".into());
    }
    if guest.cpu_pm {
        pair("-overcommit", "cpu-pm=on".into());
    }
    // The supervisor interprets a reset; see `PlannedGuest::ended`.
    pair("-action", "reboot=shutdown,panic=exit-failure".into());
    pair("-device", "pvpanic-pci".into());
    if let Some(kernel) = &guest.kernel {
        pair("-kernel", kernel.as_os_str().to_owned());
        pair("-append", text(kernel_command_line(guest)));
    }
    if let Some(initramfs) = &guest.initramfs {
        pair("-initrd", initramfs.as_os_str().to_owned());
    }
    if let Some(disk) = &guest.disk {
        pair("-object", "iothread,id=io".into());
        let mut drive = text(format!(
            "if=none,id=disk,format={},file=",
            facilities.disk_format
        ));
        drive.push(rampart_qemu::escaped(disk));
        pair("-drive", drive);
        pair("-device", "virtio-blk-pci,drive=disk,iothread=io".into());
    }
    for device in &guest.devices {
        pair("-device", text(format!("vfio-pci,host={device}")));
    }
    let mut log = text("file,id=log,append=on,path=".to_owned());
    log.push(rampart_qemu::escaped(&guest.log));
    pair("-chardev", log);
    pair("-serial", "chardev:log".into());
    list.push("-nodefaults".into());
    // Its virtual CPUs are placed before they run their first instruction.
    list.push("-S".into());
    list
}

/// Returns the kernel command line: a console, the disk as root file system if there is one, and
/// isolated real-time CPUs if the guest has other CPUs too.
fn kernel_command_line(guest: &GuestOrder) -> String {
    let mut words = vec!["console=ttyS0".to_owned(), "panic=-1".to_owned()];
    if guest.disk.is_some() {
        words.push("root=/dev/vda rw".to_owned());
    }
    let isolated: CpuSet = guest.real_time_inside();
    if !isolated.is_empty() && isolated.len() < guest.virtual_cpus.len() {
        words.push(format!("isolcpus=managed_irq,domain,{isolated}"));
        words.push(format!("nohz_full={isolated} rcu_nocbs={isolated}"));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rampart_model::SchedulingPolicy;

    use super::super::VirtualCpuPlacement;
    use super::*;

    fn order() -> GuestOrder {
        let cpu = |cpus: &str, policy| VirtualCpuPlacement {
            cpus: cpus.parse().expect("CPUs"),
            policy,
        };
        GuestOrder {
            name: "vision".to_owned(),
            kernel: Some("/boot/vmlinuz".into()),
            initramfs: None,
            disk: Some("/srv/a,b.img".into()),
            memory_bytes: 1 << 30,
            huge_page: Some(2 << 20),
            node: Some(0),
            virtual_cpus: vec![
                cpu("0", SchedulingPolicy::Other),
                cpu("2", SchedulingPolicy::Fifo(1)),
            ],
            emulator: "0".parse().expect("CPUs"),
            service: "0".parse().expect("CPUs"),
            cpu_pm: true,
            hint_dedicated: true,
            devices: vec!["0000:03:00.0".to_owned()],
            directory: "/run/vision".into(),
            log: "/run/vision.log".into(),
        }
    }

    fn words(guest: &GuestOrder) -> String {
        let facilities = Facilities {
            locked: true,
            node: Some(0),
            disk_format: "raw",
        };
        arguments(guest, &facilities)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn passes_every_setting_of_the_plan() {
        let line = words(&order());
        for part in [
            "-cpu host,pmu=off,kvm-hint-dedicated=on",
            "-smp 2,sockets=1,cores=2,threads=1",
            "-m 1048576k",
            "hugetlbsize=2097152",
            ",prealloc=on,host-nodes=0,policy=bind",
            "-overcommit cpu-pm=on",
            "-drive if=none,id=disk,format=raw,file=/srv/a,,b.img",
            "-device vfio-pci,host=0000:03:00.0",
            "root=/dev/vda rw isolcpus=managed_irq,domain,1 nohz_full=1 rcu_nocbs=1",
            "-chardev file,id=log,append=on,path=/run/vision.log",
        ] {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
        assert!(Path::new("/run/vision").is_absolute());
    }

    #[test]
    fn isolates_nothing_without_a_housekeeping_cpu() {
        let mut guest = order();
        guest.virtual_cpus.remove(0);
        guest.huge_page = None;
        let line = words(&guest);
        assert!(!line.contains("isolcpus"), "{line}");
        assert!(line.contains("memory-backend-ram"), "{line}");
        guest.kernel = None;
        assert!(!words(&guest).contains("-append"));
    }
}
