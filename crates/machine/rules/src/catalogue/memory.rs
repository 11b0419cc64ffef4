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
                "the kernel merges and splits no pages in the background",
            ),
            choice(
                "madvise",
                Expected::Marked(&["madvise", "never"]),
                "Documentation/admin-guide/mm/transhuge.rst",
                "only programs that request them get them",
            ),
        ],
        reason: "The kernel merges and splits pages in the background, which takes locks and flushes TLB entries on every CPU.",
        cost: "Programs with much memory run slower.",
        source: "Documentation/admin-guide/mm/transhuge.rst; tuned network-latency",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-page-defragmentation",
        title: "compaction in page faults for huge pages",
        location: text(&["/sys/kernel/mm/transparent_hugepage/defrag"]),
        expected: Expected::Marked(&["never", "madvise", "defer", "defer+madvise"]),
        reason: "With `always` a page fault may wait until memory was compacted.",
        cost: "Fewer huge pages.",
        source: "Documentation/admin-guide/mm/transhuge.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-page-collector",
        title: "khugepaged may compact memory",
        location: text(&["/sys/kernel/mm/transparent_hugepage/khugepaged/defrag"]),
        expected: Expected::Number(0),
        reason: "Compaction moves pages, and each move flushes TLB entries on every CPU that used them.",
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
        disruptive: Some("2 unmerges and copies every merged page at once"),
        undo: Some("Write the old value; the pages that 2 separated are merged again over time."),
        source: "Documentation/admin-guide/mm/ksm.rst; tuned realtime-virtual-host",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "numa-balancing",
        title: "automatic NUMA balancing",
        location: text(&["/proc/sys/kernel/numa_balancing"]),
        expected: Expected::Number(0),
        applies: &[When::SeveralNodes],
        choices: &[
            choice(
                "off",
                Expected::Number(0),
                "tuned realtime",
                "no thread takes page faults for the balancing",
            ),
            choice(
                "none",
                Expected::Informational,
                "NTO",
                "real-time kernels do not have it, so it is not set",
            ),
        ],
        reason: "The kernel unmaps pages to find the threads that use them, which causes page faults even in locked memory.",
        cost: "Memory stays where it was first touched.",
        source: "Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "zone-reclaim",
        title: "reclaim on the local memory node first",
        location: text(&["/proc/sys/vm/zone_reclaim_mode"]),
        expected: Expected::Number(0),
        applies: &[When::SeveralNodes],
        reason: "With it an allocation may wait for write-out on the local node while another node has free memory.",
        cost: "Some memory is on a remote node.",
        source: "Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "swap",
        title: "no memory is swapped out",
        location: Location::Fact(Fact::Swap, "/proc/swaps"),
        expected: Expected::Text("no swap"),
        reason: "Memory that is not locked may be on disk when it is needed.",
        cost: "The kernel ends a process sooner when memory runs out.",
        disruptive: Some("everything that was swapped out is read back"),
        fix: Some(
            "swapoff --all && sed -i -E 's/^[^#].*[[:space:]]swap[[:space:]]/#&/' /etc/fstab",
        ),
        undo: Some("swapon --all"),
        source: "mlockall(2); Red Hat, tuning guide for real time",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "swappiness",
        title: "the tendency to swap memory of programs",
        location: text(&["/proc/sys/vm/swappiness"]),
        expected: Expected::AtMost(10),
        reason: "With a low value the kernel reclaims file caches before memory of programs.",
        cost: "Files are read again more often.",
        source: "Documentation/admin-guide/sysctl/vm.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "dirty-limit",
        title: "limit of dirty memory at which writers wait",
        location: text(&["/proc/sys/vm/dirty_ratio"]),
        expected: Expected::AtMost(10),
        reason: "A low limit keeps the bursts of writeback short.",
        cost: "Large writes are slower.",
        kernels: Kernels::all("reads 0 if dirty_bytes is set instead"),
        source: "tuned latency-performance; Documentation/admin-guide/sysctl/vm.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "dirty-background-limit",
        title: "limit of dirty memory at which writeback starts",
        location: text(&["/proc/sys/vm/dirty_background_ratio"]),
        expected: Expected::AtMost(3),
        reason: "Writeback starts early and stays short.",
        cost: "More writes in total.",
        kernels: Kernels::all("reads 0 if dirty_background_bytes is set instead"),
        source: "tuned latency-performance; Documentation/admin-guide/sysctl/vm.rst",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "dirty-writeback-interval",
        title: "interval of periodic writeback",
        location: text(&["/proc/sys/vm/dirty_writeback_centisecs"]),
        expected: Expected::Informational,
        reason: "The writeback threads wake at this interval, on the CPUs of their workqueue.",
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
                "rare, and the statistics are still useful",
            ),
            choice("partrt", Expected::AtLeast(1000), "partrt", "almost never"),
        ],
        reason: "A worker collects the counters on each CPU whose counters changed.",
        cost: "/proc/vmstat lags behind.",
        source: "Documentation/admin-guide/sysctl/vm.rst, stat_interval; on demand since 3.18",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "proactive-compaction",
        title: "compaction of memory in advance",
        location: text(&["/proc/sys/vm/compaction_proactiveness"]),
        expected: Expected::Number(0),
        reason: "A thread moves pages to make huge pages available, and flushes TLB entries on every CPU that used them.",
        cost: "Huge pages are harder to get later: reserve them at boot.",
        source: "Documentation/admin-guide/sysctl/vm.rst, compaction_proactiveness",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "compaction-of-locked-memory",
        title: "locked pages may be moved",
        location: text(&["/proc/sys/vm/compact_unevictable_allowed"]),
        expected: Expected::Number(0),
        reason: "A thread that accesses a page during its move waits, even if the page is locked.",
        cost: "Memory is compacted less well.",
        kernels: Kernels::all("the default with PREEMPT_RT is 0"),
        source: "Documentation/admin-guide/sysctl/vm.rst, compact_unevictable_allowed",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-pages",
        title: "huge pages reserved for guests",
        location: Location::Fact(
            Fact::HugePages,
            "/sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages",
        ),
        expected: Expected::Text("some on the memory node of the real-time CPUs"),
        applies: &[When::Guests],
        reason: "With small pages a TLB miss of a guest walks two full page tables, and the pages can be moved.",
        cost: "The memory stays reserved when no guest runs.",
        fix: Some("{add} hugepagesz=1G hugepages=N\nreserve 2 MiB pages through nr_hugepages"),
        by_hand: Some("the number of pages depends on the programs"),
        source: "Documentation/admin-guide/mm/hugetlbpage.rst; tuned realtime-virtual-host; NTO",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "huge-pages-at-boot",
        title: "huge pages reserved at boot",
        location: boot("hugepages"),
        expected: Expected::Informational,
        applies: &[When::Guests],
        reason: "A contiguous range of 1 GiB is rarely free once memory is in use.",
        cost: "The memory stays reserved when no guest runs.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} default_hugepagesz=1G hugepagesz=1G hugepages=N"),
        source: "Documentation/admin-guide/kernel-parameters.txt, hugepages=",
        ..Knob::of(KnobGroup::Memory)
    },
    Knob {
        name: "default-huge-page-size",
        title: "the default size of huge pages",
        location: boot("default_hugepagesz"),
        expected: Expected::Informational,
        applies: &[When::Guests],
        reason: "A program that requests huge pages without a size gets this size.",
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
        cost: "Some memory errors of drivers are no longer detected in production.",
        undo: Some(
            "Write the old value; some kernels take it only at boot (kfence.sample_interval=).",
        ),
        kernels: Kernels::from(5, 12, "new"),
        source: "Documentation/dev-tools/kfence.rst",
        ..Knob::of(KnobGroup::Memory)
    },
];
