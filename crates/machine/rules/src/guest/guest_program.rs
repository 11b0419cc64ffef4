// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the program that runs the guest: its command line, its memory, its threads.

use rampart_model::{Accelerator, GuestThreadRole, SchedulingPolicy};

use super::{GuestSubject, Setting};

/// Devices that wake the program's main loop; a real-time guest should not have them.
const UNWANTED: [&str; 10] = [
    "usb",
    "qemu-xhci",
    "nec-usb",
    "virtio-balloon",
    "virtio-rng",
    "virtio-gpu",
    "virtio-vga",
    "VGA",
    "qxl",
    "intel-hda",
];

/// A command line of QEMU.
#[derive(Debug, Clone, Copy)]
struct Command<'a>(&'a [String]);

impl<'a> Command<'a> {
    /// Returns the values of all occurrences of an option.
    fn values(self, option: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .windows(2)
            .filter(move |pair| pair.first().is_some_and(|word| word == option))
            .filter_map(|pair| pair.get(1).map(String::as_str))
    }

    /// Returns the text before the first comma of an option.
    fn first(self, option: &str) -> Option<&'a str> {
        self.values(option).next()?.split(',').next()
    }

    /// Returns the value of `NAME=…` in an option; of several the last, as in QEMU.
    fn setting(self, option: &str, name: &str) -> Option<&'a str> {
        self.values(option)
            .flat_map(|value| value.split(','))
            .filter_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            .last()
    }

    fn has(self, word: &str) -> bool {
        self.0.iter().any(|other| other == word)
    }

    /// Returns the setting of an option as a knob.
    fn setting_of(self, of: QemuSetting<'_>) -> Setting {
        let present = self.setting(of.option, of.name);
        let satisfied = present == Some(of.wanted);
        Setting::new(
            of.rule,
            of.knob,
            of.wanted,
            present.unwrap_or("not given (QEMU's default)"),
            satisfied,
            of.reason,
        )
        .applied(satisfied)
        .fix(format!("give {} {}={}", of.option, of.name, of.wanted))
    }
}

struct QemuSetting<'a> {
    rule: &'a str,
    knob: &'a str,
    option: &'a str,
    name: &'a str,
    wanted: &'a str,
    reason: &'a str,
}

pub(super) fn memory(known: &GuestSubject<'_>) -> Vec<Setting> {
    let command = Command(known.command);
    let backing = &known.guest.memory;
    let bytes = backing.mebibytes << 20;
    let locked = command.setting("-overcommit", "mem-lock").unwrap_or("off");
    let huge = command.setting("-object", "hugetlb") == Some("on");
    let size = command
        .setting("-object", "hugetlbsize")
        .unwrap_or("unknown");
    vec![
        Setting::new(
            "guest-memory",
            "huge pages behind the guest",
            format!("{} MiB in pages of 2 MiB or 1 GiB", backing.mebibytes),
            if huge {
                format!("pages of {size} bytes")
            } else {
                "ordinary pages; too few huge pages are free".to_owned()
            },
            huge,
            "huge pages cause fewer TLB misses, and are neither moved nor split",
        )
        .applied(huge)
        .fix(format!(
            "echo {} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            backing.mebibytes.div_ceil(2)
        )),
        Setting::new(
            "guest-memory-locked",
            "-overcommit mem-lock",
            "on",
            format!("{locked} ({} MiB locked)", known.locked >> 20),
            known.locked >= bytes,
            "a page fault of the guest or of QEMU costs milliseconds",
        )
        .applied(locked == "on")
        .fix("ulimit -l unlimited"),
        command.setting_of(QemuSetting {
            rule: "same-page-merging",
            knob: "mem-merge (KSM) for the guest",
            option: "-machine",
            name: "mem-merge",
            wanted: "off",
            reason: "merged pages are copied at the next write",
        }),
        command.setting_of(QemuSetting {
            rule: "guest-memory-locked",
            knob: "prealloc for the guest's memory",
            option: "-object",
            name: "prealloc",
            wanted: "on",
            reason: "pages are there before the guest touches them",
        }),
        node(known, command),
    ]
}

fn node(known: &GuestSubject<'_>, command: Command<'_>) -> Setting {
    let bound = command.setting("-object", "host-nodes");
    let one = known.facts.nodes <= 1;
    Setting::new(
        "guest-memory",
        "memory node",
        "that of the CPUs",
        match bound {
            Some(node) => format!("bound to node {node}"),
            None if one => "the machine has one".to_owned(),
            None => format!(
                "any of the machine's {}, because the CPUs are of several",
                known.facts.nodes
            ),
        },
        bound.is_some() || one,
        "memory of another node is slower",
    )
    .applied(bound.is_some())
    .fix("choose CPUs of one node with --cpus")
}

/// Judges QEMU's command line.
pub(super) fn command(known: &GuestSubject<'_>) -> Vec<Setting> {
    let command = Command(known.command);
    let kvm = known.guest.accelerator == Accelerator::Kvm;
    let accelerator = command.first("-accel").unwrap_or("not given");
    let mut knobs = vec![
        Setting::new(
            "guest-accelerator",
            "accelerator",
            "kvm",
            accelerator,
            accelerator == "kvm",
            "emulated instructions have no bounded duration",
        )
        .applied(accelerator == "kvm")
        .fix("measure `vm` on a machine with KVM"),
        topology(command),
        devices(command),
    ];
    if kvm && known.guest.real_time {
        let model = command.first("-cpu").unwrap_or("not given");
        knobs.push(
            Setting::new(
                "guest-processor",
                "-cpu host",
                "host",
                model,
                model == "host",
                "the guest then uses the processor's own timers and instructions",
            )
            .applied(model == "host")
            .fix("give -cpu host"),
        );
        knobs.push(command.setting_of(QemuSetting {
            rule: "guest-counters",
            knob: "pmu",
            option: "-cpu",
            name: "pmu",
            wanted: "off",
            reason: "the guest's counters cost time at each exit, and raise interrupts",
        }));
        let hint = command.setting("-cpu", "kvm-hint-dedicated") == Some("on");
        knobs.push(
            Setting::new("guest-dedicated-hint", "kvm-hint-dedicated",
                "on, if no virtual CPU shares its CPU with another one or with the emulator",
                if hint { "on" } else { "off" },
                hint,
                "the hint declares that virtual CPUs are never preempted for an unlimited time, so locks cause no exits; it is false while the first one shares a CPU with the emulator's threads",
            )
            .applied(hint)
            .fix("keep two CPUs or more for ordinary work"),
        );
        knobs.push(Setting::new("guest-idle", "-overcommit cpu-pm",
            "on, if every virtual CPU has a dedicated CPU; measure both values to choose",
            command.setting("-overcommit", "cpu-pm").unwrap_or("off"),
            true,
            "an idle virtual CPU then stays in the guest: no exit at a wakeup, but the guest's first virtual CPU keeps its housekeeping CPU busy without end",
        ));
    }
    knobs
}

fn topology(command: Command<'_>) -> Setting {
    let is = |name| command.setting("-smp", name) == Some("1");
    let satisfied = is("sockets") && is("threads");
    Setting::new(
        "guest-topology",
        "topology",
        "one socket, one thread per core",
        command.values("-smp").last().unwrap_or("not given"),
        satisfied,
        "the guest must not treat two virtual CPUs as siblings",
    )
    .applied(satisfied)
    .fix("give -smp N,sockets=1,cores=N,threads=1")
}

fn devices(command: Command<'_>) -> Setting {
    let board = command.first("-machine").unwrap_or_default();
    let mut present: Vec<&str> = command
        .values("-device")
        .filter_map(|value| value.split(',').next())
        .collect();
    let mut satisfied = command.has("-nodefaults")
        && !present
            .iter()
            .any(|device| UNWANTED.iter().any(|unwanted| device.starts_with(unwanted)));
    if !command.has("-nodefaults") {
        present.push("QEMU's default devices");
    }
    // The board microvm has neither.
    if board != "microvm" {
        for name in ["usb", "hpet"] {
            if command.setting("-machine", name) != Some("off") {
                satisfied = false;
                present.push(name);
            }
        }
    }
    Setting::new(
        "guest-devices",
        "devices",
        "no USB, balloon, graphics, HPET or random source",
        format!("{board}: {}", present.join(", ")),
        satisfied,
        "each emulated device wakes the program's main loop",
    )
    .applied(satisfied)
    .fix("give -nodefaults, and none of these devices with -device")
}

/// Judges the placement of threads, as read back from the kernel.
pub(super) fn threads(known: &GuestSubject<'_>) -> Vec<Setting> {
    let (guest, threads) = (known.guest, known.threads);
    let mut knobs = Vec::new();
    let fix = "stop the services that move threads (irqbalance, tuned, managers of control groups), and measure again";
    for (number, cpu) in guest.cpus.iter().enumerate() {
        let role = u32::try_from(number).map(GuestThreadRole::VirtualCpu);
        let thread = threads.iter().find(|thread| Ok(thread.role) == role);
        let present = thread.map_or_else(
            || "no such thread".to_owned(),
            |thread| format!("CPU {}, {}", thread.cpus, thread.policy),
        );
        let satisfied =
            thread.is_some_and(|thread| thread.cpus == cpu.cpus && thread.policy == cpu.policy);
        knobs.push(
            Setting::new(
                "guest-cpu-pinning",
                format!("thread of virtual CPU {number}"),
                format!("CPU {}, {}", cpu.cpus, cpu.policy),
                present,
                satisfied,
                "each real-time virtual CPU is pinned before the guest runs its first instruction",
            )
            .applied(satisfied)
            .fix(fix),
        );
    }
    let others = || {
        threads
            .iter()
            .filter(|thread| thread.role == GuestThreadRole::Other)
    };
    let strays: Vec<String> = others()
        .filter(|thread| {
            !thread.cpus.is_subset(guest.emulator) || thread.policy != SchedulingPolicy::Other
        })
        .map(|thread| format!("{} on CPU {}, {}", thread.name, thread.cpus, thread.policy))
        .collect();
    knobs.push(
        Setting::new("guest-emulator-pinning", "all other threads of the program",
            format!("CPU {}, other", guest.emulator),
            if strays.is_empty() {
                format!("all {} of them", others().count())
            } else {
                strays.join("; ")
            },
            strays.is_empty(),
            "QEMU's main loop and workers on a real-time CPU never run while the virtual CPU is busy, and it may wait for them",
        )
        .applied(strays.is_empty())
        .fix(fix),
    );
    knobs
}
