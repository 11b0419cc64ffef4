// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fields of a plan, in two lists: for the machine and for a domain.

use rampart_model::{
    BootSection, CacheShare, ContainerSource, Enforcement, GuestMemory, KnobAction, MachineSection,
    Plan, PlannedDomain, PlannedPolicy, Reboot, Restart, SchedulingPolicy, SmtPolicy, ThreadRule,
    VirtualCpuRequest,
};

/// A field of the plan about the machine, or an implicit action of Rampart there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineField {
    /// The CPUs of ordinary work.
    Housekeeping,
    /// The topology that the plan was written for.
    Fingerprint,
    /// Siblings of real-time CPUs stay idle.
    Siblings,
    /// Siblings of real-time CPUs go offline.
    SiblingsOffline,
    /// The enforcement of rules.
    Enforcement,
    /// Rules that the plan waives.
    Waivers,
    /// Settings of the machine that the plan expects of other software.
    ExpectedSettings,
    /// Settings of the machine.
    Settings,
    /// Arguments for the kernel.
    BootArguments,
    /// Whether a restart may be needed.
    Reboot,
    /// Kernels that are kept for the root.
    Standby,
    /// Interrupts without a domain are routed to housekeeping CPUs.
    OtherInterrupts,
}

impl MachineField {
    /// Returns its name in a plan.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Housekeeping => "housekeeping",
            Self::Fingerprint => "fingerprint",
            Self::Siblings | Self::SiblingsOffline => "smt",
            Self::Enforcement => "policy of the machine",
            Self::Waivers => "waive",
            Self::ExpectedSettings => "host (expected)",
            Self::Settings => "host",
            Self::BootArguments => "boot.arguments",
            Self::Reboot => "boot.reboot",
            Self::Standby => "standby",
            Self::OtherInterrupts => "all other interrupts",
        }
    }
}

/// A field of a planned domain, or an implicit action of Rampart for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainField {
    /// Isolation of the domain's CPUs from other work and from load balancing.
    Isolation,
    /// The domain's CPUs.
    Cpus,
    /// The CPUs of virtual CPUs.
    VirtualCpus,
    /// `SCHED_FIFO` or `SCHED_RR`.
    Priority,
    /// `SCHED_DEADLINE`.
    Reservation,
    /// The deadline of its work.
    Deadline,
    /// The program.
    Run,
    /// The restart rule of the program.
    Restart,
    /// The container engine.
    Engine,
    /// A container's image.
    Image,
    /// A container's directory.
    RootFileSystem,
    /// A guest's memory.
    Memory,
    /// Huge pages behind the memory.
    HugePages,
    /// The node of the memory.
    MemoryNode,
    /// A guest's kernel.
    Kernel,
    /// A guest's initial file system.
    Initramfs,
    /// A guest's disk.
    Disk,
    /// CPUs of a guest's emulator.
    Emulator,
    /// CPUs of service threads outside the domain.
    Service,
    /// An idle virtual CPU keeps its CPU.
    IdleKeepsCpu,
    /// The hint to the guest that its CPUs are dedicated.
    DedicatedHint,
    /// PCI devices.
    Devices,
    /// The user who may take the CPUs.
    Owner,
    /// The image of a cell.
    CellImage,
    /// Fields that only cells have.
    CellOptions,
    /// Ways of the last-level cache.
    CacheWays,
    /// Size of the share of the last-level cache.
    CacheBytes,
    /// The share of the cache is exclusive.
    CacheExclusive,
    /// Memory bandwidth.
    Bandwidth,
    /// Threads with their own CPUs or policy.
    Threads,
    /// Interrupts of the domain.
    Interrupts,
}

impl DomainField {
    /// Returns its name in a plan.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Isolation => "isolation",
            Self::Cpus => "cpus",
            Self::VirtualCpus => "vcpus",
            Self::Priority => "policy",
            Self::Reservation => "policy deadline",
            Self::Deadline => "deadline",
            Self::Run => "run",
            Self::Restart => "restart",
            Self::Engine => "container.engine",
            Self::Image => "container.image",
            Self::RootFileSystem => "container.rootfs",
            Self::Memory => "memory.size",
            Self::HugePages => "memory.hugepage",
            Self::MemoryNode => "memory.node",
            Self::Kernel => "kernel",
            Self::Initramfs => "initramfs",
            Self::Disk => "disk",
            Self::Emulator => "emulator",
            Self::Service => "service",
            Self::IdleKeepsCpu => "cpu-pm",
            Self::DedicatedHint => "hint-dedicated",
            Self::Devices => "devices",
            Self::Owner => "owner",
            Self::CellImage => "image",
            Self::CellOptions => "cell",
            Self::CacheWays => "cache.ways",
            Self::CacheBytes => "cache.bytes",
            Self::CacheExclusive => "cache.exclusive",
            Self::Bandwidth => "cache.bandwidth-percent",
            Self::Threads => "threads",
            Self::Interrupts => "interrupts",
        }
    }
}

/// Returns the fields that are given.
fn given<T, const COUNT: usize>(fields: [(T, bool); COUNT]) -> Vec<T> {
    fields
        .into_iter()
        .filter(|(_, given)| *given)
        .map(|(field, _)| field)
        .collect()
}

/// Returns the given fields about the machine. Destructures every struct, so that a new field is a
/// build error.
pub(super) fn of_machine(plan: &Plan) -> Vec<MachineField> {
    let Plan {
        schema: _,
        machine,
        domains: _,
        standbys,
        host,
        boot,
        waivers,
    } = plan;
    let MachineSection {
        housekeeping: _,
        fingerprint,
        smt,
        policy,
    } = machine;
    let BootSection { arguments, reboot } = boot;
    let expects = |action: KnobAction| action == KnobAction::Expect;
    given([
        (MachineField::Housekeeping, true),
        (MachineField::OtherInterrupts, true),
        (MachineField::Fingerprint, fingerprint.is_some()),
        (MachineField::Siblings, *smt == SmtPolicy::IdleSibling),
        (MachineField::SiblingsOffline, *smt == SmtPolicy::Off),
        (MachineField::Enforcement, *policy != Enforcement::Strict),
        (MachineField::Waivers, !waivers.is_empty()),
        (MachineField::Settings, true),
        (
            MachineField::ExpectedSettings,
            host.values().any(|choice| expects(choice.action)),
        ),
        (MachineField::BootArguments, !arguments.is_empty()),
        (MachineField::Reboot, *reboot != Reboot::Never),
        (MachineField::Standby, !standbys.is_empty()),
    ])
}

/// Returns the given fields of a domain.
pub(super) fn of_domain(domain: &PlannedDomain) -> Vec<DomainField> {
    let PlannedDomain {
        name: _,
        kind,
        cpus: _,
        vcpus,
        policy,
        deadline,
        run,
        restart,
        container,
        memory,
        kernel,
        initramfs,
        disk,
        emulator,
        service,
        cpu_pm,
        hint_dedicated,
        devices,
        owner,
        image: of_cell,
        cell,
        cache,
        threads,
        interrupts,
    } = domain;
    let VirtualCpuRequest {
        count: _,
        cpus: _,
        policy: of_virtual,
        real_time: _,
        // Resolving the plan has chosen the CPUs.
        node: _,
        whole_cores: _,
        same_l3_as: _,
        not_l3_of: _,
    } = vcpus
        .as_ref()
        .map(rampart_model::VirtualCpus::request)
        .unwrap_or_default();
    let ContainerSource {
        engine,
        image,
        rootfs,
    } = container.clone().unwrap_or_default();
    let (huge, node) = match memory {
        Some(GuestMemory {
            size: _,
            hugepage,
            node,
        }) => (hugepage.is_some(), node.is_some()),
        None => (false, false),
    };
    let CacheShare {
        ways,
        bytes,
        exclusive,
        bandwidth_percent,
    } = cache.clone().unwrap_or_default();
    let of_threads = threads.iter().filter_map(|rule| {
        let ThreadRule {
            r#match: _,
            cpus: _,
            policy,
        } = rule;
        *policy
    });
    let policies: Vec<SchedulingPolicy> = [*policy, of_virtual]
        .into_iter()
        .flatten()
        .chain(of_threads)
        .map(|PlannedPolicy(policy)| policy)
        .collect();
    let reserves = |policy: &SchedulingPolicy| matches!(policy, SchedulingPolicy::Deadline { .. });
    let ranks = |policy: &SchedulingPolicy| policy.is_real_time() && !reserves(policy);
    given([
        (DomainField::Isolation, !kind.is_housekeeping()),
        (DomainField::Cpus, vcpus.is_none()),
        (DomainField::VirtualCpus, vcpus.is_some()),
        (DomainField::Priority, policies.iter().any(ranks)),
        (DomainField::Reservation, policies.iter().any(reserves)),
        (DomainField::Deadline, deadline.is_some()),
        (DomainField::Run, !run.is_empty()),
        (DomainField::Restart, *restart != Restart::Never),
        (DomainField::Engine, engine.is_some()),
        (DomainField::Image, image.is_some()),
        (DomainField::RootFileSystem, rootfs.is_some()),
        (DomainField::Memory, memory.is_some()),
        (DomainField::HugePages, huge),
        (DomainField::MemoryNode, node),
        (DomainField::Kernel, kernel.is_some()),
        (DomainField::Initramfs, initramfs.is_some()),
        (DomainField::Disk, disk.is_some()),
        (DomainField::Emulator, emulator.is_some()),
        (DomainField::Service, service.is_some()),
        (DomainField::IdleKeepsCpu, *cpu_pm),
        (DomainField::DedicatedHint, *hint_dedicated),
        (DomainField::Devices, !devices.is_empty()),
        (DomainField::Owner, owner.is_some()),
        (DomainField::CellImage, of_cell.is_some()),
        (DomainField::CellOptions, cell.is_some()),
        (DomainField::CacheWays, ways.is_some()),
        (DomainField::CacheBytes, bytes.is_some()),
        (DomainField::CacheExclusive, exclusive),
        (DomainField::Bandwidth, bandwidth_percent.is_some()),
        (DomainField::Threads, !threads.is_empty()),
        (DomainField::Interrupts, !interrupts.is_empty()),
    ])
}
