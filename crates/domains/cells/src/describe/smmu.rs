// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SMMUs of a tree, and the streams of the devices behind them (the kernel's bindings arm,smmu-v3, iommu and
//! pci-iommu).

use super::nodes::Nodes;
use super::{AddressRange, Smmu, SmmuOwner, addresses};

/// Returns the SMMUs of version 3.
pub(super) fn all(nodes: &Nodes) -> Vec<Smmu> {
    let is_smmu = |node: &usize| nodes.is_compatible(*node, &["arm,smmu-v3"]);
    let found = (0..nodes.len()).filter(is_smmu);
    found.map(|node| described(nodes, node)).collect()
}

fn described(nodes: &Nodes, smmu: usize) -> Smmu {
    let owner = match nodes.string(smmu, "status").as_deref() {
        None | Some("okay" | "ok") => SmmuOwner::Linux,
        Some("reserved") => SmmuOwner::Hypervisor,
        Some(_) => SmmuOwner::Nobody,
    };
    let mut streams = Vec::new();
    let mut configuration_space = None;
    let own = nodes.word(smmu, "phandle");
    for node in (0..nodes.len()).filter(|node| own.is_some() && nodes.is_enabled(*node)) {
        // Each entry: the first requester, the SMMU, the first stream, their number.
        for entry in nodes.words(node, "iommu-map").chunks_exact(4) {
            if Some(entry[1]) == own && entry[3] != 0 {
                streams.push((entry[2], entry[3]));
                if nodes.is_compatible(node, &["pci-host-ecam-generic"]) {
                    let space = addresses::registers(nodes, node);
                    let space = space.first().map(AddressRange::span);
                    configuration_space = configuration_space.or(space);
                }
            }
        }
        // With one word for each stream, the only form of this binding.
        for entry in nodes.words(node, "iommus").chunks_exact(2) {
            if Some(entry[0]) == own {
                streams.push((entry[1], 1));
            }
        }
    }
    Smmu {
        path: nodes.path(smmu).to_owned(),
        registers: addresses::registers(nodes, smmu)
            .first()
            .map(AddressRange::span),
        owner,
        streams: united(streams),
        configuration_space,
    }
}

/// Returns the streams as ranges that do not meet, in ascending order.
fn united(mut streams: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    streams.sort_unstable();
    let mut all: Vec<(u32, u32)> = Vec::new();
    for (first, count) in streams {
        let end = first.saturating_add(count);
        match all.last_mut() {
            Some((begin, length)) if first <= *begin + *length => {
                *length = (*length).max(end - *begin);
            }
            _ => all.push((first, end - first)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_united() {
        let found = united(vec![(8, 4), (0, 4), (2, 1), (4, 2), (10, 8), (u32::MAX, 9)]);
        assert_eq!(found, [(0, 6), (8, 10), (u32::MAX, 0)]);
    }
}
