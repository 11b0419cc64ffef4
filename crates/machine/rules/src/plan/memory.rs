// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of memory: on the node of the CPUs, and in huge pages that are free.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{ByteSize, PlanFinding, PlannedDomain, Reboot, Severity};

use super::context::DomainContext;
use super::{PLAN_RULE, PlanContext};
use crate::Rule;

pub(super) const ONE_NODE: Rule = Rule {
    id: "one-node",
    severity: Severity::Error,
    title: "CPUs, memory and devices of a domain are on one memory node",
    reason: "Access to another node takes longer, over a link that others share. A plan names the CPUs of one workload; without a plan CPUs on several nodes may belong to several workloads, which is a warning (one-memory-node).",
    source: "KubeVirt realtime; libvirt kbase kvm-realtime",
    ..PLAN_RULE
};

pub(super) const GUEST_HUGE_PAGES: Rule = Rule {
    id: "guest-huge-pages",
    severity: Severity::Error,
    title: "The huge pages of a guest are free on its node, in a size that the processor supports",
    reason: "QEMU does not start without them.",
    source: "OpenShift performance profile; Linux Documentation/admin-guide/mm/hugetlbpage.rst",
    ..PLAN_RULE
};

pub(super) const HUGE_PAGES_RESERVED_LATER: Rule = Rule {
    id: "huge-pages-reserved-later",
    severity: Severity::Note,
    title: "The huge pages of a guest are reserved before the plan is applied",
    reason: "`rampart apply` reserves them, which fails if free memory is fragmented.",
    source: "Linux Documentation/admin-guide/mm/hugetlbpage.rst",
    ..PLAN_RULE
};

/// Returns the nodes of a domain's CPUs.
fn nodes(context: &PlanContext<'_>, domain: DomainContext<'_>) -> BTreeSet<u32> {
    let topology = &context.machine.topology;
    domain
        .claim
        .owned
        .iter()
        .filter_map(|cpu| topology.node_of(cpu))
        .collect()
}

pub(super) fn one_node(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    let mut findings = Vec::new();
    for domain in context.domains() {
        let planned = domain.planned;
        let nodes = nodes(context, domain);
        let list = nodes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        let of_cpus = match nodes.len() {
            1 => format!("node {list}"),
            _ => format!("nodes {list}"),
        };
        if nodes.len() > 1 {
            findings.push(
                ONE_NODE
                    .of_domain(
                        planned,
                        "its CPUs are on several memory nodes, so some of its memory is remote",
                    )
                    .values(
                        format!("{} on nodes {list}", domain.claim.owned.named()),
                        "CPUs of one node",
                    )
                    .fix("list CPUs of one node, or write { count = N, node = N }"),
            );
        }
        if let Some(node) = planned.memory.as_ref().and_then(|memory| memory.node) {
            if !topology.nodes.iter().any(|known| known.id == node) {
                findings.push(
                    ONE_NODE
                        .of_domain(
                            planned,
                            "its memory is on a node that this machine does not have",
                        )
                        .values(format!("node {node}"), "a node of this machine")
                        .fix("remove `node`: the memory then comes from the node of its CPUs")
                        .impossible(),
                );
            } else if !nodes.is_empty() && !nodes.contains(&node) {
                findings.push(
                    ONE_NODE
                        .of_domain(planned, "its memory is on another node than its CPUs")
                        .values(
                            format!("memory on node {node}, CPUs on {of_cpus}"),
                            "one node",
                        )
                        // With CPUs on several nodes no value of `node` is right.
                        .fix(if nodes.len() == 1 {
                            format!("write node = {list}, or choose CPUs of node {node}")
                        } else {
                            format!("choose CPUs of node {node} only")
                        }),
                );
            }
        }
        for device in &planned.devices {
            match context.environment.device_nodes.get(device) {
                Some(node) if !nodes.is_empty() && !nodes.contains(node) => findings.push(
                    ONE_NODE
                        .of_domain(planned, "its device is on another node than its CPUs")
                        .values(
                            format!("{device} on node {node}, CPUs on {of_cpus}"),
                            "one node",
                        )
                        .fix(format!("choose CPUs of node {node}")),
                ),
                Some(_) => {}
                // On a machine with one node the answer is known.
                None if topology.nodes.len() < 2 => {}
                None => findings.push(ONE_NODE.not_decided_for(
                    planned,
                    format!("the node of the device {device} is not known"),
                    format!("{device} on {of_cpus}"),
                    "check that `lspci -D` lists it; the firmware may not report its node",
                )),
            }
        }
    }
    findings
}

/// Pages of this size are rarely available once memory has been used.
const GIGANTIC: u64 = 1 << 30;

/// Returns the sizes of huge pages that processors support with base pages of 4 KiB
/// (Documentation/admin-guide/mm/hugetlbpage.rst, Documentation/arch/arm64/hugetlbpage.rst).
fn sizes(architecture: &str) -> &'static [u64] {
    match architecture {
        "x86_64" => &[2 << 20, 1 << 30],
        "aarch64" => &[64 << 10, 2 << 20, 32 << 20, 1 << 30],
        _ => &[],
    }
}

/// The huge pages of one size on one node, in pages.
struct Demand {
    node: u32,
    page: ByteSize,
    /// Free pages after the allocation of earlier guests.
    left: u64,
    /// Pages that this guest needs.
    needed: u64,
    /// Pages that this guest and earlier guests need.
    all: u64,
}

/// Returns the finding for pages that `rampart apply` reserves, or an error if the node has less
/// memory than its guests request.
fn reserved_later(
    context: &PlanContext<'_>,
    domain: &PlannedDomain,
    demand: &Demand,
) -> PlanFinding {
    let (node, page) = (demand.node, demand.page);
    let nodes = &context.machine.topology.nodes;
    let memory = nodes
        .iter()
        .find(|known| known.id == node)
        .map_or(context.machine.memory, |known| known.memory);
    let requested = ByteSize(demand.all.saturating_mul(page.0));
    if memory > 0 && requested.0 >= memory {
        return GUEST_HUGE_PAGES
            .of_domain(
                domain,
                "the node has less memory than the huge pages of its guests",
            )
            .values(
                format!("{} MiB on node {node}", memory >> 20),
                format!("more than {requested}"),
            )
            .fix("request less memory")
            .impossible();
    }
    HUGE_PAGES_RESERVED_LATER
        .of_domain(
            domain,
            "the huge pages of its memory are not free on its node yet; `rampart apply` reserves them",
        )
        .values(
            format!("{} of {page} on node {node}", demand.left),
            demand.needed.to_string(),
        )
        .fix(if page.0 >= GIGANTIC {
            "write reboot = \"plan\" in [boot], so that `rampart apply --boot` reserves them at boot, before memory fragments"
        } else {
            "apply the plan early, before memory fragments"
        })
}

pub(super) fn huge_pages(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    // Pages of earlier guests, by node and size.
    let mut used: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for domain in context.domains() {
        let planned = domain.planned;
        let Some((memory, page)) = planned
            .memory
            .as_ref()
            .and_then(|memory| Some((memory, memory.hugepage?)))
        else {
            continue;
        };
        let reserved = context.environment.huge_pages.as_ref();
        let offered = reserved.is_some_and(|pages| pages.iter().any(|pages| pages.size == page.0));
        let sizes = sizes(&context.machine.architecture);
        if !offered && !sizes.is_empty() && !sizes.contains(&page.0) {
            let list: Vec<String> = sizes
                .iter()
                .map(|size| ByteSize(*size).to_string())
                .collect();
            findings.push(
                GUEST_HUGE_PAGES
                    .of_domain(planned, "the processor has no huge pages of this size")
                    .values(page.to_string(), list.join(", "))
                    .fix(format!(
                        "write hugepage = \"{}\"",
                        list.first().map_or("2MiB", String::as_str)
                    ))
                    .impossible(),
            );
            continue;
        }
        if !memory.size.0.is_multiple_of(page.0.max(1)) {
            findings.push(
                GUEST_HUGE_PAGES
                    .of_domain(planned, "its memory is not a multiple of its huge pages")
                    .values(
                        format!("{} in pages of {page}", memory.size),
                        format!("a multiple of {page}"),
                    )
                    .fix("change `size` or `hugepage`")
                    .impossible(),
            );
            continue;
        }
        let needed = memory.size.0 / page.0.max(1);
        let node = memory
            .node
            .or_else(|| nodes(context, domain).first().copied())
            .unwrap_or(0);
        let Some(reserved) = reserved else {
            findings.push(GUEST_HUGE_PAGES.not_decided_for(
                planned,
                "it is not known whether its huge pages are reserved",
                format!("{needed} of {page} on node {node}"),
                "make /sys readable",
            ));
            continue;
        };
        let before = used.entry((node, page.0)).or_default();
        let there = reserved
            .iter()
            .find(|pages| pages.node == node && pages.size == page.0);
        let (free, total) = there.map_or((0, 0), |pages| (pages.free, pages.total));
        let left = free.saturating_sub(*before);
        let all = before.saturating_add(needed);
        *before = all;
        if left >= needed {
            continue;
        }
        let demand = Demand {
            node,
            page,
            left,
            needed,
            all,
        };
        let at_boot = context.plan.boot.reboot == Reboot::Plan && page.0 >= GIGANTIC;
        if (there.is_some() || at_boot) && !context.leaves_by_name("huge-pages") {
            findings.push(reserved_later(context, planned, &demand));
            continue;
        }
        let total = total.saturating_add(all.saturating_sub(free));
        findings.push(
            GUEST_HUGE_PAGES
                .of_domain(
                    planned,
                    "the huge pages of its memory are not free on its node",
                )
                .values(format!("{left} of {page} on node {node}"), needed.to_string())
                .fix(format!(
                    "echo {total} > /sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages",
                    page.0 >> 10
                )),
        );
    }
    findings
}
