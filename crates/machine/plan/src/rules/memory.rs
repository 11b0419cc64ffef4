// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory: on the node of the CPUs, and in huge pages that are there.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{ByteSize, PlanFinding, PlannedDomain, Reboot, Severity};

use super::{Context, Each, Say, about, unknown_of};
use crate::view;

/// The nodes of a domain's CPUs.
fn nodes(context: &Context<'_>, each: Each<'_>) -> BTreeSet<u32> {
    let topology = &context.machine.topology;
    each.claim
        .got
        .iter()
        .filter_map(|cpu| view::node(topology, cpu))
        .collect()
}

pub(super) fn one_node(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "one-node";
    let mut findings = Vec::new();
    for each in context.domains() {
        let domain = each.planned;
        let nodes = nodes(context, each);
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
                about(
                    rule,
                    domain,
                    Severity::Error,
                    "its CPUs are on several memory nodes, so some of its memory is far away",
                )
                .values(
                    format!("{} on nodes {list}", each.claim.got.named()),
                    "CPUs of one node",
                )
                .fix("list CPUs of one node, or write { count = N, node = N }"),
            );
        }
        if let Some(node) = domain.memory.as_ref().and_then(|memory| memory.node) {
            let known = context
                .machine
                .topology
                .nodes
                .iter()
                .any(|known| known.id == node);
            if !known {
                findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "its memory is asked from a node that this machine does not have",
                    )
                    .values(format!("node {node}"), "a node of this machine")
                    .fix("leave `node` out: the memory then comes from the node of its CPUs")
                    .impossible(),
                );
            } else if !nodes.is_empty() && !nodes.contains(&node) {
                findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "its memory is on another node than its CPUs",
                    )
                    .values(
                        format!("memory on node {node}, CPUs on {of_cpus}"),
                        "one node",
                    )
                    // With CPUs on several nodes no value of `node` is right.
                    .fix(if nodes.len() == 1 {
                        format!("write node = {list}, or take CPUs of node {node}")
                    } else {
                        format!("take CPUs of node {node} alone")
                    }),
                );
            }
        }
        for device in &domain.devices {
            match context.environment.device_nodes.get(device) {
                Some(node) if !nodes.is_empty() && !nodes.contains(node) => findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "its device is on another node than its CPUs",
                    )
                    .values(
                        format!("{device} on node {node}, CPUs on {of_cpus}"),
                        "one node",
                    )
                    .fix(format!("take CPUs of node {node}, or another device")),
                ),
                Some(_) => {}
                // With one node there is nothing to know.
                None if context.machine.topology.nodes.len() < 2 => {}
                None => findings.push(unknown_of(
                    rule,
                    domain,
                    format!("on which node the device {device} is, is not known"),
                    format!("{device} on {of_cpus}"),
                    "look whether `lspci -D` lists it; the firmware may not tell its node",
                )),
            }
        }
    }
    findings
}

/// Pages that hardly any memory has side by side once it was used.
const GIGANTIC: u64 = 1 << 30;

/// Sizes of huge pages that processors have with pages of 4 KiB
/// (Documentation/admin-guide/mm/hugetlbpage.rst, Documentation/arch/arm64/hugetlbpage.rst).
fn sizes(architecture: &str) -> &'static [u64] {
    match architecture {
        "x86_64" => &[2 << 20, 1 << 30],
        "aarch64" => &[64 << 10, 2 << 20, 32 << 20, 1 << 30],
        _ => &[],
    }
}

/// Pages that `rampart apply` reserves. What the node does not have at all nobody reserves.
fn reserved_later(
    context: &Context<'_>,
    domain: &PlannedDomain,
    (node, page): (u32, ByteSize),
    left: u64,
    needed: u64,
    all: u64,
) -> PlanFinding {
    let rule = "huge-pages";
    let nodes = &context.machine.topology.nodes;
    let memory = nodes
        .iter()
        .find(|known| known.id == node)
        .map_or(context.machine.memory, |known| known.memory);
    let asked = ByteSize(all.saturating_mul(page.0));
    if memory > 0 && asked.0 >= memory {
        return about(
            rule,
            domain,
            Severity::Error,
            "the node has less memory than the huge pages of its guests",
        )
        .values(
            format!("{} MiB on node {node}", memory >> 20),
            format!("more than {asked}"),
        )
        .fix("ask for less memory, or for memory of another node")
        .impossible();
    }
    about(
        rule,
        domain,
        Severity::Note,
        "the huge pages of its memory are not free on its node yet; `rampart apply` reserves them",
    )
    .values(
        format!("{left} of {page} on node {node}"),
        format!("{needed}"),
    )
    .fix(if page.0 >= GIGANTIC {
        "memory that was used for long has none in one piece: write reboot = \"plan\" in [boot], and `rampart apply --boot` asks for them at the start"
    } else {
        "apply the plan early, while memory is in large pieces"
    })
}

pub(super) fn huge_pages(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "huge-pages";
    let mut findings = Vec::new();
    // What is left of each node's pages after the guests before.
    let mut used: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for each in context.domains() {
        let domain = each.planned;
        let Some((memory, page)) = domain
            .memory
            .as_ref()
            .and_then(|memory| Some((memory, memory.hugepage?)))
        else {
            continue;
        };
        let architecture = context.machine.architecture.as_str();
        let reserved = context.environment.huge_pages.as_ref();
        let offered = reserved.is_some_and(|pages| pages.iter().any(|pages| pages.size == page.0));
        let sizes = sizes(architecture);
        if !offered && !sizes.is_empty() && !sizes.contains(&page.0) {
            let list: Vec<String> = sizes
                .iter()
                .map(|size| ByteSize(*size).to_string())
                .collect();
            findings.push(
                about(
                    rule,
                    domain,
                    Severity::Error,
                    "the processor has no huge pages of this size",
                )
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
                about(
                    rule,
                    domain,
                    Severity::Error,
                    "its memory is no whole number of huge pages",
                )
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
            .or_else(|| nodes(context, each).first().copied())
            .unwrap_or(0);
        let Some(reserved) = reserved else {
            findings.push(unknown_of(
                rule,
                domain,
                "whether its huge pages are reserved is not known",
                format!("{needed} of {page} on node {node}"),
                "boot a kernel with CONFIG_HUGETLBFS, or make /sys readable",
            ));
            continue;
        };
        let before = used.entry((node, page.0)).or_default();
        let free = reserved
            .iter()
            .find(|pages| pages.node == node && pages.size == page.0)
            .map_or((0, 0), |pages| (pages.free, pages.total));
        let left = free.0.saturating_sub(*before);
        if left < needed {
            // Those of the guests before are missing too.
            let all = before.saturating_add(needed);
            let total = free.1.saturating_add(all.saturating_sub(free.0));
            let offered_there = reserved
                .iter()
                .any(|pages| pages.node == node && pages.size == page.0);
            let at_boot = context.plan.boot.reboot == Reboot::Plan && page.0 >= GIGANTIC;
            if (offered_there || at_boot) && !context.leaves_by_name("huge-pages") {
                findings.push(reserved_later(
                    context,
                    domain,
                    (node, page),
                    left,
                    needed,
                    all,
                ));
                *before = all;
                continue;
            }
            findings.push(
                about(rule, domain, Severity::Error, "the huge pages of its memory are not free on its node")
                    .values(
                        format!("{left} of {page} on node {node}"),
                        format!("{needed}"),
                    )
                    .fix(format!(
                        "echo {total} > /sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages; large ones early, or at boot",
                        page.0 >> 10
                    )),
            );
        }
        *before = before.saturating_add(needed);
    }
    findings
}
