// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the nested fields of a domain: container, memory, cache, threads, interrupts, devices.

use rampart_model::device_tree::PciFunction;
use rampart_model::{ContainerEngine, InterruptMatch, PlannedDomain};

use crate::kinds::Fault;

/// Returns the first fault of these fields.
pub(crate) fn first_fault(domain: &PlannedDomain) -> Option<Fault> {
    let name = &domain.name;
    let fault = |field, what: &str, fix: &str| {
        Some(Fault::of("domain", format!("domain `{name}`: {what}"), fix).field(field))
    };
    if let Some(container) = &domain.container {
        let embedded = container
            .engine
            .is_none_or(|engine| engine == ContainerEngine::Embedded);
        if container.image.is_some() && (container.rootfs.is_some() || embedded) {
            return fault(
                "container",
                "`image` requires podman or docker, and excludes `rootfs`",
                "write { engine = \"podman\", image = \"NAME\" }, or { rootfs = \"DIRECTORY\" }",
            );
        }
    }
    if domain.run.first().is_some_and(String::is_empty) {
        return fault(
            "run",
            "the program of `run` has no name",
            "write the program first, then its arguments",
        );
    }
    if domain.deadline.is_some_and(|deadline| deadline.0 == 0) {
        return fault(
            "deadline",
            "the deadline is 0",
            "write for example \"100us\"",
        );
    }
    if let Some(memory) = &domain.memory {
        let page = memory.hugepage.map_or(4096, |page| page.0);
        if memory.size.0 == 0 || !page.is_power_of_two() || page < 4096 {
            return fault(
                "memory",
                "the size is 0, or no processor has huge pages of this size",
                "write for example { size = \"1GiB\", hugepage = \"2MiB\" }",
            );
        }
    }
    if let Some(cache) = &domain.cache {
        let sizes = [cache.ways.map(u64::from), cache.bytes.map(|bytes| bytes.0)];
        let given: Vec<u64> = sizes.into_iter().flatten().collect();
        let percent = cache.bandwidth_percent;
        if given.len() > 1
            || given.contains(&0)
            || percent.is_some_and(|part| !(1..=100).contains(&part))
            || (given.is_empty() && percent.is_none())
        {
            return fault(
                "cache",
                "a share is either `ways` or `bytes`, above 0, and a bandwidth of 1 to 100 percent",
                "write for example { ways = 4, exclusive = true }",
            );
        }
    }
    if domain.threads.iter().any(|rule| rule.r#match.is_empty()) {
        return fault(
            "threads",
            "an entry of `threads` has no name",
            "write match = \"worker*\"",
        );
    }
    if domain
        .interrupts
        .iter()
        .any(|rule| *rule == InterruptMatch::default())
    {
        return fault(
            "interrupts",
            "an empty entry would match every interrupt",
            "write for example { action = \"eth1-*\" }",
        );
    }
    let is_cell = domain.kind.program() == rampart_model::DomainProgram::Image;
    if !is_cell
        && !domain
            .devices
            .iter()
            .all(|device| PciFunction::is_address(device))
    {
        return fault(
            "devices",
            "this is not the address of a PCI device",
            "write it as in `lspci -D`: \"0000:03:00.0\"",
        );
    }
    None
}
