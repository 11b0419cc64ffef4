// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "transparent-huge-pages",
        title: "transparent huge pages",
        location: text(&["/sys/kernel/mm/transparent_hugepage/enabled"]),
        expected: Expected::Marked(&["never"]),
        choices: &[
            choice(
                "never",
                Expected::Marked(&["never"]),
                "tuned network-latency, NTO",
                "nothing is joined or split behind a thread's back",
            ),
            choice(
                "madvise",
                Expected::Marked(&["madvise", "never"]),
                "Documentation/admin-guide/mm/transhuge.rst",
                "who asks for them gets them, nobody else",
            ),
        ],
        reason: "Pages are joined and split in the background, which takes locks and flushes translations on every CPU.",
        cost: "Programs with much memory run slower.",
        source: "Documentation/admin-guide/mm/transhuge.rst; tuned network-latency",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-page-defragmentation",
        title: "waiting for a huge page",
        location: text(&["/sys/kernel/mm/transparent_hugepage/defrag"]),
        expected: Expected::Marked(&["never", "madvise", "defer", "defer+madvise"]),
        reason: "With `always` a page fault may wait until memory was compacted.",
        cost: "Fewer huge pages.",
        source: "Documentation/admin-guide/mm/transhuge.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-page-collector",
        title: "the thread that joins pages may compact memory",
        location: text(&["/sys/kernel/mm/transparent_hugepage/khugepaged/defrag"]),
        expected: Expected::Number(0),
        reason: "Compaction moves pages, and each move flushes translations on every CPU that used them.",
        cost: "Fewer huge pages.",
        source: "Documentation/admin-guide/mm/transhuge.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "same-page-merging",
        title: "merging of equal pages (KSM)",
        location: text(&["/sys/kernel/mm/ksm/run"]),
        expected: Expected::Word(&["2", "0"]),
        reason: "A merged page is copied at the next write, in a page fault of the thread that writes.",
        cost: "Equal guests need more memory.",
        disruptive: Some("2 copies every merged page at once"),
        undo: Some("Write the old value; what 2 separated is merged again in time."),
        source: "Documentation/admin-guide/mm/ksm.rst; tuned realtime-virtual-host",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "numa-balancing",
        title: "moving memory to who uses it",
        location: text(&["/proc/sys/kernel/numa_balancing"]),
        expected: Expected::Number(0),
        applies: &[When::SeveralNodes],
        choices: &[
            choice(
                "off",
                Expected::Number(0),
                "tuned realtime",
                "no thread takes faults to find out who uses what",
            ),
            choice(
                "none",
                Expected::Informational,
                "NTO",
                "kernels for real time do not have it, so it is not set",
            ),
        ],
        reason: "Pages are unmapped to see who uses them: a page fault in a thread that locked its memory.",
        cost: "Memory stays where it was first touched.",
        source: "Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "zone-reclaim",
        title: "emptying the near node first",
        location: text(&["/proc/sys/vm/zone_reclaim_mode"]),
        expected: Expected::Number(0),
        applies: &[When::SeveralNodes],
        reason: "With it an allocation may wait for pages of its own node to be written out while another node is free.",
        cost: "Some memory is farther away.",
        source: "Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "swap",
        title: "no memory is swapped out",
        location: Place::Fact(Fact::Swap, "/proc/swaps"),
        expected: Expected::Text("no swap"),
        reason: "What is not locked may be on the disk when it is needed.",
        cost: "Memory that is used up ends a process sooner.",
        disruptive: Some("everything that was swapped out is read back"),
        fix: Some("swapoff --all, and the line taken out of /etc/fstab"),
        undo: Some("swapon --all"),
        source: "mlockall(2); Red Hat, tuning guide for real time",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "swappiness",
        title: "how soon programs' memory is taken",
        location: text(&["/proc/sys/vm/swappiness"]),
        expected: Expected::AtMost(10),
        reason: "A low value takes file caches before memory of programs.",
        cost: "Files are read again more often.",
        source: "Documentation/admin-guide/sysctl/vm.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "dirty-limit",
        title: "unwritten data before writers must wait",
        location: text(&["/proc/sys/vm/dirty_ratio"]),
        expected: Expected::AtMost(10),
        reason: "A small heap of dirty pages is written without a storm.",
        cost: "Large writes are slower.",
        kernels: Kernels::all("reads 0 where dirty_bytes is set in its place"),
        source: "tuned latency-performance; Documentation/admin-guide/sysctl/vm.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "dirty-background-limit",
        title: "unwritten data before writing begins",
        location: text(&["/proc/sys/vm/dirty_background_ratio"]),
        expected: Expected::AtMost(3),
        reason: "Writing begins early and stays small.",
        cost: "More writes in all.",
        kernels: Kernels::all("reads 0 where dirty_background_bytes is set in its place"),
        source: "tuned latency-performance; Documentation/admin-guide/sysctl/vm.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "dirty-writeback-interval",
        title: "how often dirty pages are looked for",
        location: text(&["/proc/sys/vm/dirty_writeback_centisecs"]),
        expected: Expected::Informational,
        reason: "The writers wake this often, on the CPUs of their workqueue.",
        cost: "More data is lost when the power fails.",
        source: "Documentation/admin-guide/sysctl/vm.rst, dirty_writeback_centisecs",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "statistics-interval",
        title: "seconds between updates of memory statistics",
        location: text(&["/proc/sys/vm/stat_interval"]),
        expected: Expected::AtLeast(10),
        choices: &[
            choice(
                "tuned",
                Expected::AtLeast(10),
                "tuned realtime, NTO",
                "rare enough, and the figures are still of use",
            ),
            choice(
                "partrt",
                Expected::AtLeast(1000),
                "partrt",
                "as good as never",
            ),
        ],
        reason: "A worker folds the counters of each CPU that changed some.",
        cost: "/proc/vmstat lags behind.",
        source: "Documentation/admin-guide/sysctl/vm.rst, stat_interval; on demand since 3.18",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "proactive-compaction",
        title: "compaction of memory in advance",
        location: text(&["/proc/sys/vm/compaction_proactiveness"]),
        expected: Expected::Number(0),
        reason: "A thread moves pages so that huge ones can be had, and flushes translations on every CPU that used them.",
        cost: "Huge pages are harder to get later: reserve them at boot.",
        source: "Documentation/admin-guide/sysctl/vm.rst, compaction_proactiveness",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "compaction-of-locked-memory",
        title: "locked pages may be moved",
        location: text(&["/proc/sys/vm/compact_unevictable_allowed"]),
        expected: Expected::Number(0),
        reason: "A page that is being moved makes the thread that touches it wait, although it was locked.",
        cost: "Memory is compacted less well.",
        kernels: Kernels::all("PREEMPT_RT begins with 0"),
        source: "Documentation/admin-guide/sysctl/vm.rst, compact_unevictable_allowed",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-pages",
        title: "huge pages kept for guests",
        location: Place::Fact(
            Fact::HugePages,
            "/sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages",
        ),
        expected: Expected::Text("some on the memory node of the real-time CPUs"),
        applies: &[When::Guests],
        reason: "A guest on small pages misses its translations twice as deep, and its pages can be moved.",
        cost: "The memory is kept even when no guest runs.",
        fix: Some(
            "hugepagesz=1G hugepages=N on the kernel command line; 2 MiB pages can be had later through nr_hugepages",
        ),
        source: "Documentation/admin-guide/mm/hugetlbpage.rst; tuned realtime-virtual-host; NTO",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-pages-at-boot",
        title: "huge pages asked for at boot",
        location: boot("hugepages"),
        expected: Expected::Informational,
        applies: &[When::Guests],
        reason: "1 GiB in one piece is hard to find once memory was used.",
        cost: "The memory is kept even when no guest runs.",
        effect: KnobEffect::AtRestart,
        fix: Some("default_hugepagesz=1G hugepagesz=1G hugepages=N on the kernel command line"),
        source: "Documentation/admin-guide/kernel-parameters.txt, hugepages=",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "default-huge-page-size",
        title: "size of huge pages where nobody names one",
        location: boot("default_hugepagesz"),
        expected: Expected::Informational,
        applies: &[When::Guests],
        reason: "It decides what a program gets that asks for huge pages and names no size.",
        cost: "With 1G the default mount has no 2 MiB pages.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, default_hugepagesz=; NTO",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "sampling-of-allocations",
        title: "the sampling error detector (KFENCE) is off",
        location: text(&["/sys/module/kfence/parameters/sample_interval"]),
        expected: Expected::Number(0),
        reason: "At each sample the kernel patches its own code, which may interrupt every CPU.",
        cost: "Some errors of drivers are no longer found in the field.",
        undo: Some(
            "Write the old value; some kernels take it only at boot (kfence.sample_interval=).",
        ),
        kernels: Kernels::from(5, 12, "new"),
        source: "Documentation/dev-tools/kfence.rst",
        ..Knob::of(KnobGroup::Memory)
    },
];
