// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the kernels that are kept to start the root again.

use std::collections::BTreeSet;

use rampart_model::{DomainProgram, Plan, PlannedStandby};

use crate::kinds::Fault;
use crate::names::is_name;

/// Returns the first fault, with the index of the standby that has it. `known` has the names of the domains.
pub(crate) fn fault<'a>(plan: &'a Plan, mut known: BTreeSet<&'a str>) -> Option<(usize, Fault)> {
    let has_cell = plan
        .domains
        .iter()
        .any(|domain| domain.kind.program() == DomainProgram::Image);
    for (index, standby) in plan.standbys.iter().enumerate() {
        let found = own_fault(standby).or_else(|| {
            let of = |what: String, fix| Some(Fault::of("standby", what, fix).field("name"));
            let name = &standby.name;
            if !known.insert(name) {
                return of(
                    format!("the name `{name}` is used twice"),
                    "give each domain and each standby a unique name",
                );
            }
            if has_cell {
                return None;
            }
            of(
                format!("the plan has no cell, and without one the root is not started again by `{name}`"),
                "remove it, or add a domain with kind = \"cell\"",
            )
        });
        if let Some(fault) = found {
            return Some((index, fault));
        }
    }
    None
}

fn own_fault(standby: &PlannedStandby) -> Option<Fault> {
    let name = &standby.name;
    let of =
        |field: &'static str, what: String, fix| Some(Fault::of("standby", what, fix).field(field));
    // The hypervisor's limit.
    if !is_name(name) || name.len() > 32 || name == "root" {
        return of(
            "name",
            format!("`{}` is not a valid name of a standby", name.escape_debug()),
            "use at most 32 letters, digits, `-`, `_` and `.`, and not `root`",
        );
    }
    for (field, path) in [
        ("kernel", &standby.kernel),
        ("initramfs", &standby.initramfs),
    ] {
        if path.is_empty() {
            return of(
                field,
                format!("standby `{name}`: the path is empty"),
                "write for example kernel = \"/boot/vmlinuz\", initramfs = \"/boot/initrd.img\"",
            );
        }
    }
    if standby.memory.0 == 0 {
        return of(
            "memory",
            format!("standby `{name}`: the size is 0"),
            "write for example memory = \"256MiB\"",
        );
    }
    None
}
