// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places the sections of a cell's networks and chooses their interrupts. The first end that is created chooses for
//! both; the other one finds it with the cell that exists.

use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_model::{ByteSize, Finding};

use super::memory::{Placed, last_fit};
use super::{CellInUse, CellRequest, InUse, NAME_BYTES, Payload, problem};
use crate::describe::{AddressSpan, Description};
use crate::names::{LONGEST_NAME, is_name};
use crate::network::{NetworkLink, NetworkRequest, ROOT_PEER, section_bytes, wrong_bytes};

/// The names of a network's sections in a program without an operating system: that which it writes, and that
/// which the peer writes.
fn section_names(peer: &str) -> [String; 2] {
    [format!("network.{peer}"), format!("network.{peer}.in")]
}

/// Places the sections, from `next` on in a program without an operating system.
pub(super) fn sections(
    in_use: &InUse,
    request: &CellRequest,
    free: &mut Vec<AddressSpan>,
    mut next: u64,
    placed: &mut Placed,
    found: &mut Vec<Finding>,
) {
    // What is not of the colours of the cell takes no line of a cache.
    let has_colours = placed.own.is_some_and(|own| own.colours != 0);
    for (index, network) in request.networks.iter().enumerate() {
        let twice = request.networks[..index]
            .iter()
            .any(|other| other.peer == network.peer);
        if let Some(finding) = invalid(request, network, twice) {
            found.push(finding);
            continue;
        }
        let bytes = section_bytes(network.bytes);
        let known = in_use.cells.iter().find(|cell| cell.name == network.peer);
        let mut link = NetworkLink {
            peer: network.peer.clone(),
            own: 0,
            other: 0,
            bytes,
            own_bell: 0,
            peer_bell: 0,
            root_doorbell: 0,
            cached: network.cached && !has_colours,
        };
        if let Some(peer) = known {
            match of_peer(request, peer, &link) {
                Ok(theirs) => (link.own, link.other) = (theirs.other, theirs.own),
                Err(finding) => {
                    found.push(finding);
                    continue;
                }
            }
        } else {
            let mut section = || last_fit(free, bytes);
            let (Some(own), Some(other)) = (section(), section()) else {
                found.push(
                    problem(
                        location(request, &network.peer),
                        "too little of the memory that is reserved from Linux is free",
                    )
                    .values("less", format!("2 sections of {}", ByteSize(bytes)))
                    .fix("request a smaller network, destroy a cell (rampart cell destroy), or reserve more memory"),
                );
                continue;
            };
            (link.own, link.other) = (own, other);
        }
        let of_root = if network.peer == ROOT_PEER {
            [
                MemoryFlags::ROOT_READ,
                MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE,
            ]
        } else {
            [MemoryFlags::empty(); 2]
        };
        let mut common = MemoryFlags::SHARED | MemoryFlags::READ;
        common.set(MemoryFlags::UNCACHED, !link.cached);
        let flags = [
            common | MemoryFlags::WRITE | of_root[0],
            common | of_root[1],
        ];
        let names = section_names(&network.peer);
        for ((physical, flags), name) in [link.own, link.other].into_iter().zip(flags).zip(names) {
            let region = MemoryRegion {
                physical,
                guest: match request.payload {
                    Payload::Bare => next,
                    Payload::Linux => physical,
                },
                bytes,
                flags: flags.bits(),
                colours: 0,
            };
            next += bytes;
            if request.payload == Payload::Bare {
                placed.names.insert(&region, &name);
            }
            placed.shared.push(region);
        }
        placed.names.networks.push(link);
    }
}

fn location(request: &CellRequest, peer: &str) -> String {
    format!("cell {}, network with {peer}", request.name)
}

/// Returns why a request for a network is invalid.
fn invalid(request: &CellRequest, network: &NetworkRequest, twice: bool) -> Option<Finding> {
    let NetworkRequest { peer, bytes, .. } = network;
    let location = location(request, peer);
    let longest = match request.payload {
        Payload::Bare => LONGEST_NAME - section_names("")[1].len(),
        Payload::Linux => NAME_BYTES,
    };
    if twice {
        let finding = problem(location, "the cell has two networks with the same peer");
        return Some(finding.fix("remove one of them"));
    }
    if *peer == request.name {
        let finding = problem(location, "the peer is the cell itself");
        return Some(finding.fix("name another cell, or root"));
    }
    if !is_name(peer, longest) {
        let finding = problem(location, "invalid name of a peer").values(
            format!("`{}`", peer.escape_debug()),
            format!("root, or a cell with a name of at most {longest} characters"),
        );
        return Some(finding.fix("choose another name for the other cell"));
    }
    let wrong = wrong_bytes(*bytes)?;
    Some(problem(location, wrong).fix("request for example 256KiB"))
}

/// Returns the link of an existing peer to the requested cell.
fn of_peer<'a>(
    request: &CellRequest,
    peer: &'a CellInUse,
    link: &NetworkLink,
) -> Result<&'a NetworkLink, Finding> {
    let location = location(request, &peer.name);
    let mut links = peer.names.networks.iter();
    let Some(theirs) = links.find(|theirs| theirs.peer == request.name) else {
        return Err(
            problem(location, "the other cell has no network with this one")
                .values(
                    "none",
                    format!("a network of {} with {}", peer.name, request.name),
                )
                .fix(format!(
                    "create {} again, with a network with {}",
                    peer.name, request.name
                )),
        );
    };
    let described = |link: &NetworkLink| {
        let cached = if link.cached { "cached" } else { "not cached" };
        format!("{}, {cached}", ByteSize(link.bytes))
    };
    if (theirs.bytes, theirs.cached) == (link.bytes, link.cached) {
        return Ok(theirs);
    }
    Err(problem(location, "both ends have different sections")
        .values(described(link), described(theirs))
        .fix(format!("request the size that {} has", peer.name)))
}

/// Chooses the interrupts of the placed networks, and adds them to those that are taken. Returns that of the cell
/// itself, if it has networks.
pub(super) fn bells(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    taken: &mut Vec<u32>,
    placed: &mut Placed,
    found: &mut Vec<Finding>,
) -> Option<u32> {
    let links = &mut placed.names.networks;
    if links.is_empty() {
        return None;
    }
    let free = in_use.free_interrupts(description);
    let next = |taken: &mut Vec<u32>, allowed: &dyn Fn(u32) -> bool| {
        let mut free = free.iter().copied();
        let number = free.find(|number| !taken.contains(number) && allowed(*number))?;
        taken.push(number);
        Some(number)
    };
    let few = |what: &str| {
        problem(
            format!("cell {}, networks", request.name),
            format!("too few shared interrupts are unused by devices for {what}"),
        )
        .values("0", "1")
        .fix("destroy a cell that has doorbells or networks (rampart cell destroy)")
    };
    let with_root = links.iter().any(|link| link.peer == ROOT_PEER);
    let rung_by_root = |number: u32| !with_root || in_use.root_doorbells.contains(&number);
    // Cells that exist may have chosen it already.
    let all = in_use.cells.iter().flat_map(|cell| &cell.names.networks);
    let chosen = |name: &str| {
        let mut all = all.clone();
        all.find(|link| link.peer == name)
            .map(|link| link.peer_bell)
    };
    let own = match chosen(&request.name) {
        Some(number) => Some(number).filter(|number| rung_by_root(*number)),
        None => next(taken, &rung_by_root),
    };
    let Some(own) = own else {
        found.push(few("the cell"));
        return None;
    };
    taken.push(own);
    for link in links {
        link.own_bell = own;
        let exists = in_use.cells.iter().find(|cell| cell.name == link.peer);
        let peer_bell = if link.peer == ROOT_PEER {
            Some(in_use.network_interrupt).filter(|number| *number != 0)
        } else if let Some(peer) = exists {
            let mut theirs = peer.names.networks.iter();
            theirs.next().map(|theirs| theirs.own_bell)
        } else {
            let in_root = |number: u32| in_use.root_doorbells.contains(&number);
            chosen(&link.peer)
                .or_else(|| next(taken, &in_root))
                .or_else(|| next(taken, &|_| true))
        };
        match peer_bell {
            Some(number) => link.peer_bell = number,
            None => found.push(few(&link.peer)),
        }
        let mut doorbells = in_use.root_doorbells.iter();
        link.root_doorbell = doorbells.position(|number| *number == own).unwrap_or(0) as u32;
    }
    Some(own)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::Path;

    use rampart_model::{CpuId, CpuSet};

    use super::*;
    use crate::describe::{Sources, describe};
    use crate::resolve::{CpuSelection, Resolved, resolve};

    pub(in crate::resolve) fn property(tree: &Path, name: &str, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    /// Returns a machine with four CPUs and free interrupts, and what its hypervisor uses.
    fn machine() -> (Description, InUse) {
        machine_with(|_| ())
    }

    /// Returns the machine with further nodes.
    pub(in crate::resolve) fn machine_with(add: impl FnOnce(&Path)) -> (Description, InUse) {
        let tree = tempfile::tempdir().expect("a directory");
        let tree = tree.path();
        add(tree);
        for cells in ["#address-cells", "#size-cells"] {
            property(tree, cells, &[2]);
        }
        property(tree, "interrupt-parent", &[1]);
        property(tree, "intc@8000000/phandle", &[1]);
        property(tree, "intc@8000000/#interrupt-cells", &[3]);
        property(tree, "intc@8000000/interrupt-controller", &[]);
        fs::write(tree.join("intc@8000000/compatible"), b"arm,gic-v3\0").expect("written");
        let frames = [0, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0xf6_0000];
        property(tree, "intc@8000000/reg", &frames);
        property(tree, "serial@9000000/reg", &[0, 0x900_0000, 0, 0x1000]);
        property(tree, "serial@9000000/interrupts", &[0, 28, 4]);
        fs::write(tree.join("serial@9000000/compatible"), b"arm,pl011\0").expect("written");
        property(tree, "cpus/#address-cells", &[1]);
        property(tree, "cpus/#size-cells", &[0]);
        for cpu in 0..4 {
            property(tree, &format!("cpus/cpu@{cpu}/reg"), &[cpu]);
            let kind = tree.join(format!("cpus/cpu@{cpu}/device_type"));
            fs::write(kind, b"cpu\0").expect("written");
        }
        let mut description = describe(&Sources::recorded(tree, None).expect("a tree"));
        description.kept = vec![AddressSpan {
            start: 0x7000_0000,
            bytes: 0x2000_0000,
        }];
        let in_use = InUse {
            event_interrupt: 59,
            network_interrupt: 58,
            root_doorbells: (42..58).rev().collect(),
            ..InUse::default()
        };
        (description, in_use)
    }

    pub(in crate::resolve) fn request(name: &str, cpu: u32, peers: &[(&str, u64)]) -> CellRequest {
        let network = |(peer, bytes): &(&str, u64)| NetworkRequest {
            peer: (*peer).to_owned(),
            bytes: *bytes,
            cached: true,
        };
        CellRequest {
            cpus: CpuSelection::List(CpuSet::from_iter([CpuId(cpu)])),
            networks: peers.iter().map(network).collect(),
            ..CellRequest::linux(name, 64 << 20)
        }
    }

    fn created(number: u32, resolved: &Resolved) -> CellInUse {
        CellInUse {
            number,
            name: resolved.configuration.name.clone(),
            configuration: resolved.configuration.clone(),
            names: resolved.names.clone(),
        }
    }

    /// Asserts that two cells are the ends of one link: each writes what the other one reads, and rings it.
    fn assert_linked(near: &Resolved, far: &Resolved) {
        let link = |of: &Resolved, peer: &Resolved| {
            let name = &peer.configuration.name;
            let mut links = of.names.networks.iter();
            links
                .find(|link| link.peer == *name)
                .expect("a link")
                .clone()
        };
        let (one, two) = (link(near, far), link(far, near));
        assert_eq!((one.own, one.other), (two.other, two.own));
        assert_eq!((one.own_bell, one.peer_bell), (two.peer_bell, two.own_bell));
        for (end, link) in [(near, &one), (far, &two)] {
            let flags = |start: u64| {
                let memory = &end.configuration.memory;
                let region = memory.iter().find(|region| region.physical == start);
                region.expect("a region").flags()
            };
            let read = MemoryFlags::SHARED | MemoryFlags::READ;
            assert_eq!(flags(link.own), read | MemoryFlags::WRITE);
            assert_eq!(flags(link.other), read);
            let owns = |number: u32| {
                let mut grants = end.configuration.interrupts.iter();
                grants.any(|grant| grant.number == number && grant.is_doorbell())
            };
            assert!(owns(link.own_bell) && !owns(link.peer_bell));
            let mut doorbells = end.configuration.doorbells.iter();
            assert!(doorbells.any(|doorbell| doorbell.interrupt == link.peer_bell));
        }
    }

    #[test]
    fn both_ends_use_what_the_first_one_has_chosen() {
        let (description, mut in_use) = machine();
        let near = request("near", 3, &[("root", 1 << 16), ("far", 1 << 16)]);
        let near_resolved = resolve(&description, &in_use, &near).expect("near");
        in_use.cells.push(created(1, &near_resolved));
        let far = request("far", 2, &[("near", 1 << 16), ("third", 1 << 16)]);
        let far_resolved = resolve(&description, &in_use, &far).expect("far");
        assert_linked(&near_resolved, &far_resolved);
        let with_root = &near_resolved.names.networks[0];
        assert_eq!(with_root.peer_bell, 58);
        let rung = in_use.root_doorbells[with_root.root_doorbell as usize];
        assert_eq!(rung, with_root.own_bell);
        in_use.cells.push(created(2, &far_resolved));
        let third = request("third", 1, &[("far", 1 << 16)]);
        let third_resolved = resolve(&description, &in_use, &third).expect("third");
        assert_linked(&far_resolved, &third_resolved);
        // One that is created again.
        in_use.cells.remove(0);
        let again = resolve(&description, &in_use, &near).expect("near again");
        assert_linked(&again, &far_resolved);
    }

    #[test]
    fn ends_that_differ_are_refused() {
        let (description, mut in_use) = machine();
        let near = request("near", 3, &[("far", 1 << 16)]);
        let near = resolve(&description, &in_use, &near).expect("near");
        in_use.cells.push(created(1, &near));
        for (request, wanted) in [
            (
                request("far", 2, &[("near", 1 << 17)]),
                "different sections",
            ),
            (
                request("other", 2, &[("near", 1 << 16)]),
                "no network with this one",
            ),
            (request("far", 2, &[("far", 1 << 16)]), "the cell itself"),
            (request("far", 2, &[("near", 5000)]), "power of two"),
            (
                request("far", 2, &[("near", 1 << 16), ("near", 1 << 16)]),
                "same peer",
            ),
        ] {
            let found = resolve(&description, &in_use, &request).expect_err(wanted);
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(
                found.iter().any(|text| text.contains(wanted)),
                "{wanted}: {found:#?}"
            );
        }
    }
}
