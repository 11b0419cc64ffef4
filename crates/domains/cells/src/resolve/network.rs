// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places the sections of a cell's networks and chooses their interrupts. The first end that is created chooses for
//! both; the other one finds it with the cell that exists.

use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_model::{ByteSize, Finding};

use super::memory::{Placed, last_fit};
use super::{CellInUse, CellRequest, InUse, NAME_BYTES, Payload, problem};
use crate::describe::{AddressSpan, Description};
use crate::names::LONGEST_NAME;
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
            cached: network.cached,
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
        let common = MemoryFlags::SHARED | MemoryFlags::READ;
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
                reserved: 0,
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
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if twice {
        let finding = problem(location, "the cell has two networks with the same peer");
        return Some(finding.fix("remove one of them"));
    }
    if *peer == request.name {
        let finding = problem(location, "the peer is the cell itself");
        return Some(finding.fix("name another cell, or root"));
    }
    if peer.is_empty() || peer.len() > longest || !peer.chars().all(allowed) {
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
