// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the fields of cells.

use std::collections::BTreeSet;

use rampart_model::device_tree::PciFunction;
use rampart_model::{CellNetwork, CellOptions, CellPayload, DomainProgram, Plan, PlannedDomain};

use crate::kinds::Fault;
use crate::names::is_name;

/// Longest name in a cell's directory of regions, in bytes.
const REGION_NAME_BYTES: usize = 32;

/// Returns a field that only cells have.
pub(crate) fn only(domain: &PlannedDomain) -> Option<&'static str> {
    let fields = [
        ("image", domain.image.is_some()),
        ("cell", domain.cell.is_some()),
    ];
    let given = fields.into_iter().find(|(_, given)| *given);
    given.map(|(field, _)| field)
}

/// Returns the first fault of a cell's fields.
pub(crate) fn fault(domain: &PlannedDomain) -> Option<Fault> {
    not_of_cells(domain)
        .or_else(|| missing(domain))
        .or_else(|| wrong(domain))
}

fn not_of_cells(domain: &PlannedDomain) -> Option<Fault> {
    const NO_PROCESS: &str = "remove it: no process of Linux runs in a cell";
    let page = domain.memory.as_ref();
    let fields = [
        (
            "vcpus",
            domain.vcpus.is_some(),
            "write `cpus`: a cell has no virtual CPUs",
        ),
        ("policy", domain.policy.is_some(), NO_PROCESS),
        (
            "run",
            !domain.run.is_empty(),
            "remove it: a cell runs its `image`",
        ),
        ("container", domain.container.is_some(), NO_PROCESS),
        (
            "kernel",
            domain.kernel.is_some(),
            "write the kernel as `image`",
        ),
        (
            "disk",
            domain.disk.is_some(),
            "remove it: a cell has no emulated devices",
        ),
        ("emulator", domain.emulator.is_some(), NO_PROCESS),
        ("service", domain.service.is_some(), NO_PROCESS),
        ("cpu-pm", domain.cpu_pm, NO_PROCESS),
        ("hint-dedicated", domain.hint_dedicated, NO_PROCESS),
        (
            "cache",
            domain.cache.is_some(),
            "remove it, and write the share as cell = { cache-percent = 25 }: Linux does not divide caches for cells",
        ),
        ("threads", !domain.threads.is_empty(), NO_PROCESS),
        (
            "interrupts",
            !domain.interrupts.is_empty(),
            "remove it: a cell's interrupts come with its `devices`",
        ),
        (
            "memory",
            page.is_some_and(|memory| memory.hugepage.is_some() || memory.node.is_some()),
            "write only `size`: the memory is not Linux's",
        ),
    ];
    let (field, _, fix) = fields.into_iter().find(|(_, given, _)| *given)?;
    let what = format!("domain `{}` is a cell and has `{field}`", domain.name);
    Some(Fault::of("domain", what, fix).field(field))
}

fn missing(domain: &PlannedDomain) -> Option<Fault> {
    let fields = [
        (
            "cpus",
            domain.cpus.is_none(),
            "write cpus = \"1\", or cpus = { count = 1 }",
        ),
        (
            "memory",
            domain.memory.is_none(),
            "write memory = { size = \"16MiB\" }",
        ),
        (
            "image",
            domain.image.is_none(),
            "write image = \"/opt/press/press.bin\"",
        ),
    ];
    let (field, _, fix) = fields.into_iter().find(|(_, missing, _)| *missing)?;
    let what = format!("the cell `{}` has no `{field}`", domain.name);
    Some(Fault::of("domain", what, fix))
}

fn wrong(domain: &PlannedDomain) -> Option<Fault> {
    let options = domain.cell.clone().unwrap_or_default();
    let fault = |field, what: &str, fix: &str| {
        let what = format!("domain `{}`: {what}", domain.name);
        Some(Fault::of("domain", what, fix).field(field))
    };
    // The hypervisor's limit.
    if domain.name.len() > 32 || domain.name == "root" {
        return fault(
            "name",
            "this is not a valid name of a cell",
            "use at most 32 characters, and not `root`",
        );
    }
    if domain
        .memory
        .as_ref()
        .is_some_and(|memory| memory.size.0 == 0)
    {
        return fault(
            "memory",
            "the size is 0",
            "write for example { size = \"16MiB\" }",
        );
    }
    if domain.devices.iter().any(String::is_empty) {
        return fault(
            "devices",
            "a device has no name",
            "rampart cell describe lists the devices",
        );
    }
    let is_wrong = |device: &String| {
        !device.starts_with('/') && device.contains(':') && !PciFunction::is_address(device)
    };
    if domain.devices.iter().any(is_wrong) {
        return fault(
            "devices",
            "this is not the address of a PCI function",
            "write it as rampart cell describe does: \"0000:00:04.0\"",
        );
    }
    if options.watchdog.is_some_and(|watchdog| watchdog.0 == 0) {
        return fault(
            "cell",
            "the watchdog time is 0",
            "write for example watchdog = \"100ms\"",
        );
    }
    if options
        .cache_percent
        .is_some_and(|share| !(1..=100).contains(&share))
    {
        return fault(
            "cell",
            "the share of the cache is not 1 to 100 percent",
            "write for example cache-percent = 25",
        );
    }
    if options
        .unconfined_dma
        .values()
        .any(|reason| reason.trim().is_empty())
    {
        return fault(
            "cell",
            "a device with unconfined DMA has no reason",
            "write for example unconfined-dma = { \"/dma@30bd0000\" = \"trusted program\" }",
        );
    }
    let linux = is_linux(domain);
    if let Some(limit) = options.starts_within
        && (limit.0 == 0 || !linux)
    {
        return fault(
            "cell",
            "`starts-within` is a time for a Linux",
            "write for example starts-within = \"60s\", or remove it",
        );
    }
    if !linux && domain.initramfs.is_some() {
        return fault(
            "initramfs",
            "a bare-metal program has no initial file system",
            "remove it, or remove payload = \"bare-metal\"",
        );
    }
    if linux && domain.initramfs.is_none() {
        return fault(
            "cell",
            "its Linux has no initial file system",
            "write initramfs = \"/opt/press/initramfs.cpio\"",
        );
    }
    if linux && options.argument != 0 {
        return fault(
            "cell",
            "`argument` is for a bare-metal program",
            "remove it, or remove `initramfs`",
        );
    }
    if let Some((what, fix)) = wrong_regions(&options, linux) {
        return fault("cell", &what, fix);
    }
    if !linux && !options.arguments.is_empty() {
        return fault(
            "cell",
            "`arguments` is for Linux",
            "remove it, or write argument = NUMBER",
        );
    }
    None
}

/// Returns the first fault of the regions that a cell shares.
fn wrong_regions(options: &CellOptions, linux: bool) -> Option<(String, &'static str)> {
    // `rampart cell create` takes a number for a region without a name.
    let is_region = |name: &str| is_name(name) && !name.bytes().all(|byte| byte.is_ascii_digit());
    let mut names = BTreeSet::new();
    for region in &options.shared {
        match &region.name {
            None if linux => {
                return Some((
                    "a region has no name, and its Linux would not find it".to_owned(),
                    "write for example { name = \"records\", size = \"64KiB\" }",
                ));
            }
            Some(name) if !is_region(name) || name.len() > REGION_NAME_BYTES => {
                return Some((
                    format!("`{name}` is not a valid name of a region"),
                    "use 1 to 32 letters, digits, `-`, `_` and `.`, not only digits",
                ));
            }
            Some(name) if !names.insert(name.clone()) => {
                return Some((
                    format!("two regions have the name `{name}`"),
                    "give each region a unique name",
                ));
            }
            _ => {}
        }
    }
    let wrong = options.reads.iter().find(|read| {
        let parts = read.split_once(':');
        !parts.is_some_and(|(cell, region)| is_name(cell) && is_name(region))
    });
    wrong.map(|read| {
        (
            format!("`{read}` is not a region of a cell"),
            "write CELL:NAME, for example reads = [\"press:records\"]",
        )
    })
}

/// Returns the first fault of networks, with the index of the domain that has it: each has a valid size and a
/// peer, and both ends agree.
pub(crate) fn network_fault(plan: &Plan) -> Option<(usize, Fault)> {
    let networks = |domain: &PlannedDomain| -> Vec<CellNetwork> {
        let options = domain.cell.as_ref();
        options.map_or_else(Vec::new, |options| options.network.clone())
    };
    let fault = |domain: &PlannedDomain, what: String, fix: String| {
        let what = format!("domain `{}`: {what}", domain.name);
        Some(Fault::of("domain", what, fix).field("cell"))
    };
    let wrong = |domain: &PlannedDomain| {
        let own = networks(domain);
        own.iter().enumerate().find_map(|(index, network)| {
            let CellNetwork { peer, size } = network;
            if !CellNetwork::is_valid_size(*size) {
                let what = format!("the network with `{peer}` has a size of {size}");
                return fault(
                    domain,
                    what,
                    format!(
                        "write a power of two from {} to {}",
                        CellNetwork::LEAST,
                        CellNetwork::MOST
                    ),
                );
            }
            if own[..index].iter().any(|other| other.peer == *peer) {
                let what = format!("there are two networks with `{peer}`");
                return fault(domain, what, "remove one of them".to_owned());
            }
            if peer == CellNetwork::ROOT {
                return None;
            }
            let mut others = plan
                .domains
                .iter()
                .filter(|other| other.name != domain.name);
            let is_cell = |other: &&PlannedDomain| {
                other.name == *peer && other.kind.program() == DomainProgram::Image
            };
            let Some(other) = others.find(is_cell) else {
                let what =
                    format!("the plan has no other cell `{peer}`, with which it has a network");
                return fault(
                    domain,
                    what,
                    "write the name of another cell, or `root`".to_owned(),
                );
            };
            let theirs = networks(other);
            let back = theirs.iter().find(|network| network.peer == domain.name);
            if back.is_some_and(|network| network.size == *size) {
                return None;
            }
            let what = match back {
                Some(back) => format!(
                    "its network with `{peer}` has {size}, and there {}",
                    back.size
                ),
                None => format!("`{peer}` does not have the network with it"),
            };
            let entry = format!("{{ peer = \"{}\", size = \"{size}\" }}", domain.name);
            fault(
                domain,
                what,
                format!("write network = [{entry}] in the cell `{peer}`"),
            )
        })
    };
    let mut domains = plan.domains.iter().enumerate();
    domains.find_map(|(index, domain)| Some((index, wrong(domain)?)))
}

/// Returns whether a cell runs Linux.
#[must_use]
pub fn is_linux(domain: &PlannedDomain) -> bool {
    let options = domain.cell.as_ref();
    match options.and_then(|options| options.payload) {
        Some(payload) => payload == CellPayload::Linux,
        None => domain.initramfs.is_some(),
    }
}
