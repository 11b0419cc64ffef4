// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks, resets and power domains that the root serves to a cell which runs Linux: those that the nodes of its
//! devices name in the machine's tree, in their order, without clocks of fixed frequency and what the cell itself has.

use rampart_hypervisor_core::format::{Doorbell, MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::{DOORBELL_BY_SMC, PAGE_BYTES};
use rampart_model::Finding;

use super::memory::{Placed, last_fit, too_little};
use super::tree::{NOTHING, place, text, words};
use super::{CellRequest, InUse, Payload, devices, problem};
use crate::describe::{AddressSpan, Description, Reference, TreeDevice};
use crate::linux::TreeNode;
use crate::scmi::{MOST_OF_A_KIND, Resource, ResourceKind, Service};

/// Phandles of the nodes of the service: one for each kind, and that of the page.
pub(super) const PHANDLES: u32 = ResourceKind::ALL.len() as u32 + 1;

/// Returns the resources that the root serves.
fn needed(description: &Description, request: &CellRequest) -> Vec<Resource> {
    if request.payload != Payload::Linux {
        return Vec::new();
    }
    let requested = request.devices.iter();
    let requested = requested.filter_map(|name| devices::device(description, name).ok());
    let paths: Vec<&str> = requested.map(|device| device.path.as_str()).collect();
    let has = |device: &&TreeDevice| paths.contains(&device.path.as_str());
    let others = || {
        description
            .devices
            .iter()
            .filter(|one| one.enabled && !has(one))
    };
    let mut found: Vec<Resource> = Vec::new();
    for device in description.devices.iter().filter(has) {
        for kind in ResourceKind::ALL {
            let is_of = |one: &&Reference| one.property == kind.binding().0;
            let all = device.references.iter().filter(is_of);
            let served = all.enumerate().filter(|(_, one)| {
                one.frequency.is_none()
                    && one.path != NOTHING
                    && !paths.contains(&one.path.as_str())
            });
            for (index, reference) in served {
                if found.iter().filter(|one| one.kind == kind).count() == MOST_OF_A_KIND {
                    break;
                }
                found.push(Resource {
                    kind,
                    path: device.path.clone(),
                    index: index as u32,
                    shared: others().any(|other| other.references.contains(reference)),
                });
            }
        }
    }
    found
}

/// Places the page of messages, if the cell needs the service.
pub(super) fn page(
    description: &Description,
    request: &CellRequest,
    free: &mut Vec<AddressSpan>,
    placed: &mut Placed,
    found: &mut Vec<Finding>,
) {
    let resources = needed(description, request);
    if resources.is_empty() {
        return;
    }
    let Some(page) = last_fit(free, PAGE_BYTES) else {
        let what = "the page for SCMI";
        found.push(too_little(request, 0, PAGE_BYTES, description, what));
        return;
    };
    let both = MemoryFlags::READ | MemoryFlags::WRITE;
    let of_root = MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE;
    placed.shared.push(MemoryRegion {
        physical: page,
        guest: page,
        bytes: PAGE_BYTES,
        flags: (both | of_root | MemoryFlags::SHARED | MemoryFlags::UNCACHED).bits(),
        colours: 0,
    });
    placed.names.service = Some(Service {
        page,
        resources,
        ..Service::default()
    });
}

/// Chooses the interrupt by which the root rings the cell, and adds it to those that are taken. Returns the doorbell
/// of the root for the cell.
pub(super) fn bell(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    taken: &mut Vec<u32>,
    placed: &mut Placed,
    found: &mut Vec<Finding>,
) -> Option<Doorbell> {
    let service = placed.names.service.as_mut()?;
    let free = in_use.free_interrupts(description);
    let mut doorbells = in_use.root_doorbells.iter().enumerate();
    let own = doorbells.find(|(_, number)| free.contains(number) && !taken.contains(number));
    let (Some((index, number)), 1..) = (own, in_use.network_interrupt) else {
        found.push(
            problem(
                format!("cell {}, SCMI", request.name),
                "too few shared interrupts are unused by devices for the clocks of its devices",
            )
            .values("0", "1")
            .fix("destroy a cell that has doorbells or networks (rampart cell destroy)"),
        );
        return None;
    };
    (service.bell, service.root_doorbell) = (*number, index as u32);
    taken.push(*number);
    Some(Doorbell {
        interrupt: in_use.network_interrupt,
        reserved: 0,
    })
}

/// Returns the nodes of the service (Linux, devicetree/bindings/firmware/arm,scmi.yaml). The first of [`PHANDLES`] is
/// `first`; `doorbell` is the cell's index of the root's.
pub(super) fn nodes(service: &Service, first: u32, doorbell: u32) -> Vec<TreeNode> {
    let page = first + PHANDLES - 1;
    let property = |name: &str, value: Vec<u8>| (name.to_owned(), value);
    let protocol = |kind: ResourceKind| {
        let (_, cells, protocol) = kind.binding();
        let mut resources = service.resources.iter();
        resources.any(|one| one.kind == kind).then(|| TreeNode {
            name: format!("protocol@{protocol:x}"),
            properties: vec![
                property("reg", words(&[protocol])),
                property(cells, words(&[1])),
                property("phandle", words(&[first + kind as u32])),
            ],
            ..TreeNode::default()
        })
    };
    vec![
        TreeNode {
            name: format!("scmi-memory@{:x}", service.page),
            properties: vec![
                property("compatible", text("arm,scmi-shmem")),
                property("reg", words(&place(service.page, PAGE_BYTES))),
                property("phandle", words(&[page])),
            ],
            ..TreeNode::default()
        },
        TreeNode {
            name: "scmi".to_owned(),
            properties: vec![
                property("compatible", text("arm,scmi-smc")),
                property("shmem", words(&[page])),
                property("arm,smc-id", words(&[DOORBELL_BY_SMC + doorbell])),
                // A shared interrupt with a rising edge.
                property("interrupts", words(&[0, service.bell - 32, 1])),
                property("interrupt-names", text("a2p")),
                // The root may be busy. Linux 6.12 and older do not read this, and wait for 30 ms.
                property("arm,max-rx-timeout-ms", words(&[500])),
                property("#address-cells", words(&[1])),
                property("#size-cells", words(&[0])),
            ],
            children: ResourceKind::ALL.into_iter().filter_map(protocol).collect(),
            ..TreeNode::default()
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rampart_model::Severity;

    use super::super::network::tests::{machine_with, property, request};
    use super::*;
    use crate::resolve::resolve;

    /// Adds a fixed clock, providers, two devices and a third one that shares a reset.
    fn board(tree: &Path) {
        let provider = |name: &str, phandle: u32| {
            property(tree, &format!("{name}/phandle"), &[phandle]);
            fs::write(tree.join(name).join("compatible"), b"board,provider\0").expect("written");
        };
        for (name, phandle, cells) in [
            ("clocks", 2, "#clock-cells"),
            ("resets", 3, "#reset-cells"),
            ("power", 4, "#power-domain-cells"),
        ] {
            provider(name, phandle);
            property(tree, &format!("{name}/{cells}"), &[1]);
        }
        provider("fixed", 5);
        fs::write(tree.join("fixed/compatible"), b"fixed-clock\0").expect("written");
        property(tree, "fixed/#clock-cells", &[0]);
        property(tree, "fixed/clock-frequency", &[24_000_000]);
        for (name, address, properties) in [
            (
                "spi@9020000",
                0x902_0000,
                &[
                    ("clocks", &[2, 7, 5, 2, 7, 0, 2, 9][..]),
                    ("resets", &[3, 1]),
                ][..],
            ),
            (
                "i2c@9030000",
                0x903_0000,
                &[
                    ("clocks", &[2, 8]),
                    ("power-domains", &[4, 6]),
                    ("resets", &[3, 2]),
                ],
            ),
            ("can@9040000", 0x904_0000, &[("resets", &[3, 2])]),
        ] {
            property(tree, &format!("{name}/reg"), &[0, address, 0, 0x1000]);
            fs::write(tree.join(name).join("compatible"), b"board,device\0").expect("written");
            for (property_name, words) in properties {
                property(tree, &format!("{name}/{property_name}"), words);
            }
        }
    }

    fn words_of(node: &TreeNode, name: &str) -> Vec<u32> {
        let mut all = node.properties.iter();
        let (_, value) = all.find(|(known, _)| known == name).expect(name);
        let (words, _) = value.as_chunks::<4>();
        words.iter().map(|word| u32::from_be_bytes(*word)).collect()
    }

    #[test]
    fn clocks_resets_and_power_domains_are_served_in_the_order_of_the_tree() {
        let (description, mut in_use) = machine_with(board);
        let mut wanted = request("near", 3, &[]);
        wanted.devices = vec!["i2c".to_owned(), "spi".to_owned()];
        let resolved = resolve(&description, &in_use, &wanted).expect("resolved");
        let service = resolved.names.service.as_ref().expect("a service");
        let listed = service.resources.iter();
        let listed: Vec<_> = listed
            .map(|one| (one.kind, &one.path[1..4], one.index, one.shared))
            .collect();
        let (clock, reset, power) = (
            ResourceKind::Clock,
            ResourceKind::Reset,
            ResourceKind::PowerDomain,
        );
        let expected = [
            (clock, "spi", 0, false),
            (clock, "spi", 2, false),
            (clock, "spi", 4, false),
            (reset, "spi", 0, false),
            (clock, "i2c", 0, false),
            (reset, "i2c", 0, true),
            (power, "i2c", 0, false),
        ];
        assert_eq!(listed, expected);
        let node = |name: &str| {
            let mut nodes = resolved.nodes.iter();
            nodes.find(|node| node.name.starts_with(name)).expect(name)
        };
        let scmi = node("scmi");
        let server = resolved
            .nodes
            .iter()
            .find(|node| node.name == "scmi")
            .expect("scmi");
        assert!(scmi.name.starts_with("scmi-memory@"));
        let phandles: Vec<u32> = server
            .children
            .iter()
            .map(|below| words_of(below, "phandle")[0])
            .collect();
        let [clocks, resets, domains] = phandles[..] else {
            panic!("{server:#?}")
        };
        let fixed = words_of(node("clock-24000000"), "phandle")[0];
        let spi = words_of(node("spi"), "clocks");
        assert_eq!(spi, [clocks, 0, fixed, clocks, 1, 0, clocks, 2]);
        assert_eq!(words_of(node("spi"), "resets"), [resets, 0]);
        assert_eq!(words_of(node("i2c"), "clocks"), [clocks, 3]);
        assert_eq!(words_of(node("i2c"), "resets"), [resets, 1]);
        assert_eq!(words_of(node("i2c"), "power-domains"), [domains, 0]);
        // It rings the root, may do so by SMC, and is rung by the root.
        let configuration = &resolved.configuration;
        let function = words_of(server, "arm,smc-id")[0];
        let index = (function - DOORBELL_BY_SMC) as usize;
        assert_eq!(
            configuration.doorbells[index].interrupt,
            in_use.network_interrupt
        );
        assert!(
            configuration
                .smcs
                .iter()
                .any(|range| (range.first, range.last) == (function, function))
        );
        assert_eq!(words_of(server, "interrupts"), [0, service.bell - 32, 1]);
        assert_eq!(
            in_use.root_doorbells[service.root_doorbell as usize],
            service.bell
        );
        let notes = resolved
            .findings
            .iter()
            .filter(|one| one.severity == Severity::Note);
        assert_eq!(notes.filter(|one| one.what.contains("by SCMI")).count(), 5);

        // A program without an operating system has none, and each cell has a bell of its own.
        wanted.payload = Payload::Bare;
        let bare = resolve(&description, &in_use, &wanted).expect("resolved");
        assert_eq!(bare.names.service, None);
        in_use.root_doorbells.truncate(1);
        wanted.payload = Payload::Linux;
        let first = resolve(&description, &in_use, &wanted).expect("resolved");
        let number = first.names.service.as_ref().map(|service| service.bell);
        in_use.root_doorbells = number.into_iter().collect();
        let taken = InUse {
            event_interrupt: in_use.root_doorbells[0],
            ..in_use
        };
        let refused = resolve(&description, &taken, &wanted).expect_err("no bell is free");
        assert!(
            refused.iter().any(|one| one.location.ends_with("SCMI")),
            "{refused:?}"
        );
    }
}
