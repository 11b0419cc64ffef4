// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Knobs that need several files: [`Fact`] names them, [`judge`] judges them.

mod cpus;
mod devices;
mod groups;
pub(crate) mod irqbalance;
mod kernel;
pub(crate) mod log;
mod processor;
mod threads;

use rampart_model::CheckLocation;

pub(crate) use cpus::limits_to_lower;
pub use cpus::resume_latency_limit;
pub(crate) use processor::DEEP;

use crate::machine::check::Subject;
use crate::{Isolation, Unread};

/// A property that no single file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fact {
    /// Whether the processor is emulated in software.
    Emulation,
    /// The hypervisor that the machine runs under.
    Hypervisor,
    /// The container that Rampart itself runs in.
    Container,
    /// Whether a CPU is left for ordinary work.
    EnoughCpus,
    /// Whether the boot CPU is a housekeeping CPU.
    BootCpu,
    /// Siblings of real-time CPUs.
    Siblings,
    /// Memory nodes of the real-time CPUs.
    OneNode,
    /// Kinds of cores among the real-time CPUs.
    MixedCores,
    /// The number of firmware interrupts (SMI).
    FirmwareInterrupts,
    /// A property that no file shows.
    NotShown,
    /// Caches that real-time CPUs share with others.
    SharedCache,
    /// Whether shared caches can be divided.
    CacheAllocation,
    /// Whether the kernel is PREEMPT_RT.
    Preemption,
    /// The preemption mode of a kernel without PREEMPT_RT.
    PreemptionMode,
    /// Mitigations of CPU vulnerabilities.
    Mitigations,
    /// CPUs that the scheduler does not balance.
    Balancing,
    /// The lists of the kernel command line.
    BootLists,
    /// The affinity of the first process.
    FirstProcess,
    /// Whether control groups need a budget for real-time policies.
    GroupScheduling,
    /// `RLIMIT_MEMLOCK`.
    LockedMemory,
    /// `RLIMIT_RTPRIO`.
    RealTimePriority,
    /// The affinity of interrupts.
    InterruptAffinity,
    /// CPUs that irqbalance excludes.
    BannedCpus,
    /// The clock source.
    ClockSource,
    /// Whether the time stamp counter has a constant rate.
    ConstantCounter,
    /// Swap.
    Swap,
    /// Huge pages by node and size.
    HugePages,
    /// The range of frequencies.
    FrequencyRange,
    /// The deepest idle state in use.
    IdleLatency,
    /// Receive queues of network interfaces.
    NetworkQueues,
    /// Version of control groups.
    ControlGroups,
    /// Validity of cpuset partitions.
    Partitions,
    /// The IOMMU.
    Iommu,
    /// CPUs of control groups at any depth.
    GroupCpus,
    /// CPUs of programs.
    ProgramAffinity,
    /// Real-time threads of programs that may run on several real-time CPUs.
    FloatingThreads,
    /// A scheduler of sched_ext.
    ExtensibleScheduler,
    /// Words of the kernel command line that the kernel does not know.
    UnknownParameters,
    /// Flags of `isolcpus=`.
    IsolcpusFlags,
    /// Debugging options that the kernel is built with.
    DebugOptions,
    /// Modules from outside the kernel's source.
    ForeignModules,
    /// The hardware random number generator in use.
    RandomGenerator,
    /// Runtime power management of devices.
    DevicePower,
}

/// The judgement of a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The knob was read.
    Is {
        /// The value found, in short.
        found: String,
        /// Whether it is as expected; `None` if it is not judged.
        satisfied: Option<bool>,
        /// The locations that were read, if there are several.
        locations: Vec<CheckLocation>,
    },
    /// The knob does not matter on this machine, for this reason.
    NotApplicable(String),
    /// The knob could not be read.
    Unread(Unread),
}

impl Judgement {
    fn is(found: impl Into<String>, satisfied: bool) -> Self {
        Self::Is {
            found: found.into(),
            satisfied: Some(satisfied),
            locations: Vec::new(),
        }
    }

    fn informational(found: impl Into<String>) -> Self {
        Self::Is {
            found: found.into(),
            satisfied: None,
            locations: Vec::new(),
        }
    }

    fn not_applicable(why: impl Into<String>) -> Self {
        Self::NotApplicable(why.into())
    }
}

/// Returns the judgement of deviations, each a location and the value found there. `none` is the value found without
/// any.
fn deviations(
    found: impl Iterator<Item = (String, String)>,
    none: &str,
    expected: &str,
) -> Judgement {
    let locations: Vec<CheckLocation> = found
        .map(|(location, found)| CheckLocation {
            location,
            found,
            expected: expected.to_owned(),
            satisfied: Some(false),
        })
        .collect();
    if locations.is_empty() {
        return Judgement::is(none, true);
    }
    Judgement::Is {
        found: first_words(locations.iter().map(|one| one.found.as_str())),
        satisfied: Some(false),
        locations,
    }
}

/// Returns the first three of these texts, joined, with the number of the others.
fn first_words<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Judges one fact of one machine.
pub(crate) fn judge(fact: Fact, subject: &Subject<'_>, isolation: &Isolation) -> Judgement {
    let (facts, readings) = (subject.machine, subject.readings);
    match fact {
        Fact::Emulation => processor::emulation(facts),
        Fact::Hypervisor => processor::hypervisor(facts),
        Fact::Container => processor::container(facts),
        Fact::FirmwareInterrupts => processor::firmware_interrupts(facts),
        Fact::NotShown => Judgement::informational("not readable"),
        Fact::ClockSource => processor::clock_source(facts),
        Fact::ConstantCounter => processor::constant_counter(readings),
        Fact::CacheAllocation => processor::cache_allocation(readings),
        Fact::FrequencyRange => processor::frequency_range(facts),
        Fact::Iommu => processor::iommu(readings),
        Fact::EnoughCpus => cpus::enough(facts, isolation),
        Fact::BootCpu => cpus::boot_cpu(isolation),
        Fact::Siblings => cpus::siblings(facts, isolation),
        Fact::OneNode => cpus::one_node(facts, isolation),
        Fact::MixedCores => cpus::mixed_cores(facts, isolation),
        Fact::SharedCache => cpus::shared_cache(facts, isolation),
        Fact::Balancing => cpus::balancing(facts, readings, isolation),
        Fact::BootLists => cpus::boot_lists(facts, readings, isolation),
        Fact::FirstProcess => cpus::first_process(readings, isolation),
        Fact::InterruptAffinity => cpus::interrupt_affinity(readings, isolation),
        Fact::BannedCpus => irqbalance::banned_cpus(readings, isolation),
        Fact::IdleLatency => cpus::idle_latency(facts, readings),
        Fact::NetworkQueues => cpus::network_queues(readings, isolation),
        Fact::HugePages => cpus::huge_pages(facts, readings, isolation),
        Fact::Preemption => kernel::preemption(facts),
        Fact::PreemptionMode => kernel::preemption_mode(facts),
        Fact::Mitigations => kernel::mitigations(facts),
        Fact::GroupScheduling => kernel::group_scheduling(facts, readings),
        Fact::LockedMemory => kernel::locked_memory(readings),
        Fact::RealTimePriority => kernel::real_time_priority(readings),
        Fact::Swap => kernel::swap(readings),
        Fact::ControlGroups => kernel::control_groups(facts),
        Fact::Partitions => groups::partitions(readings),
        Fact::GroupCpus => groups::cpus(readings, isolation),
        Fact::ProgramAffinity => threads::affinity(facts, readings, isolation),
        Fact::FloatingThreads => threads::floating(readings, isolation),
        Fact::ExtensibleScheduler => threads::extensible_scheduler(readings),
        Fact::IsolcpusFlags => log::isolcpus_flags(readings),
        Fact::UnknownParameters => log::unknown_parameters(readings),
        Fact::DebugOptions => kernel::debug_options(readings),
        Fact::ForeignModules => kernel::foreign_modules(readings),
        Fact::RandomGenerator => devices::random_generator(readings),
        Fact::DevicePower => devices::power(readings),
    }
}
