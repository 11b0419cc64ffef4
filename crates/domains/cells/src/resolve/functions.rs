// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions of a cell: their memory, interrupts and streams, and the host bridge of a Linux cell, whose
//! configuration space is memory of the cell ([`crate::pci`]; the kernel's binding pci-host-ecam-generic).

use rampart_hypervisor_core::format::StreamGrant;
use rampart_model::{Finding, Severity};

use super::tree::{place, text, words};
use super::{CellInUse, CellRequest, InUse, devices::DeviceResources, problem};
use crate::describe::{AddressSpan, Description, PciFunction};
use crate::linux::{INTERRUPT_CONTROLLER, LEVEL_HIGH, TreeNode};
use crate::pci::{CellFunction, MOST_FUNCTIONS, SPACE_BYTES};
use crate::system_configuration::reserved_smmu;

/// Adds the resources of the requested functions, ordered by address. Adds a finding for each that the cell cannot have.
pub(super) fn resources(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    resources: &mut DeviceResources,
    found: &mut Vec<Finding>,
) -> Vec<AddressSpan> {
    let mut chosen: Vec<&PciFunction> = Vec::new();
    for requested in request
        .devices
        .iter()
        .filter(|one| PciFunction::is_address(one))
    {
        let all = &mut description.functions.iter();
        match all.find(|function| function.address.eq_ignore_ascii_case(requested)) {
            Some(function) if chosen.contains(&function) => {}
            Some(function) => chosen.push(function),
            None => found.push(
                problem(
                    format!("cell {}, PCI function {requested}", request.name),
                    "this machine has no such PCI function",
                )
                .fix("rampart cell describe lists the functions"),
            ),
        }
    }
    chosen.sort_by(|one, other| one.address.cmp(&other.address));
    if chosen.len() > MOST_FUNCTIONS {
        found.push(
            problem(
                format!("cell {}, devices", request.name),
                "too many PCI functions",
            )
            .values(
                chosen.len().to_string(),
                format!("{MOST_FUNCTIONS} at most"),
            )
            .fix("request fewer"),
        );
        return Vec::new();
    }
    let mut pages = Vec::new();
    let cells = in_use.cells.iter();
    let mut streams = cells.flat_map(|cell| &cell.configuration.streams);
    let with_reset = !streams.any(|stream| stream.function != 0);
    for function in &chosen {
        let before = found.len();
        refusals(description, in_use, request, function, &chosen, found);
        if found.len() > before {
            continue;
        }
        let (Some(page), Some(stream)) = (function.page, stream(function)) else {
            continue;
        };
        if !with_reset {
            found.push(
                Finding::new(
                    Severity::Warning,
                    location(request, function),
                    "it is not reset before, because another cell has a function: it keeps the orders of its last owner",
                )
                .fix("create the other cell afterwards, unless nothing has used the function since it was reset"),
            );
        }
        match CellFunction::new(function, with_reset) {
            Ok(function) => resources.functions.push(function),
            Err(what) => {
                found
                    .push(problem(location(request, function), what).fix("leave it with the root"));
                continue;
            }
        }
        let bases = function.bases().map(|base| base.span);
        pages.extend(bases.map(|span| super::devices::in_pages(&span)));
        resources.streams.push(StreamGrant {
            first: stream,
            count: 1,
            function: page,
        });
        if let Some(port) = port(description, function)
            && !resources.paths.contains(&port.address)
            && let (Some(page), Some(stream)) = (port.page, self::stream(port))
        {
            resources.streams.push(StreamGrant {
                first: stream,
                count: 1,
                function: page,
            });
            resources.paths.push(port.address.clone());
        }
        if let Some(interrupt) = &function.interrupt
            && !resources.interrupts.contains(&interrupt.number)
        {
            resources.interrupts.push(interrupt.number);
        }
        resources.paths.push(function.address.clone());
    }
    pages
}

fn location(request: &CellRequest, function: &PciFunction) -> String {
    format!("cell {}, PCI function {}", request.name, function.address)
}

fn stream(function: &PciFunction) -> Option<u32> {
    function.stream.as_ref()?.arguments.first().copied()
}

/// Returns the root port above a function. It goes to the same cell: its registers turn the link off and reset what is
/// behind it.
fn port<'a>(description: &'a Description, function: &PciFunction) -> Option<&'a PciFunction> {
    let mut all = description.functions.iter();
    all.find(|port| Some(&port.address) == function.behind.as_ref())
}

/// Adds what prevents that the cell gets the function.
fn refusals(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    function: &PciFunction,
    chosen: &[&PciFunction],
    found: &mut Vec<Finding>,
) {
    let location = || location(request, function);
    let owner = |cell: &&CellInUse| {
        let mut streams = cell.configuration.streams.iter();
        streams.any(|stream| Some(stream.function) == function.page)
    };
    if let Some(cell) = in_use.cells.iter().find(owner) {
        found.push(
            problem(location(), "another cell owns it")
                .values(format!("cell {}", cell.name), "no owner")
                .fix(format!("rampart cell destroy {}", cell.name)),
        );
        return;
    }
    found.extend(function.obstacles.iter().map(|obstacle| Finding {
        location: location(),
        ..obstacle.clone()
    }));
    let smmu = reserved_smmu(description);
    let in_space = |page: u64| {
        smmu.is_some_and(|(iommu, _)| {
            let (start, bytes) = iommu.space_range();
            page.checked_sub(start).is_some_and(|offset| offset < bytes)
        })
    };
    let is_behind = smmu.zip(function.stream.as_ref());
    let is_behind = is_behind.is_some_and(|((_, smmu), stream)| stream.path == smmu.path);
    if !is_behind || !function.page.is_some_and(in_space) {
        // No waiver: without it the root can also move the function, and give it orders.
        found.push(
            problem(location(), "the hypervisor does not guard it")
                .values(
                    match &function.stream {
                        Some(stream) => format!("behind {}", stream.path),
                        None => "behind no SMMU".to_owned(),
                    },
                    "behind an SMMUv3 with status = \"reserved\", as the first host bridge",
                )
                .fix("leave the function with the root, or reserve its SMMU in the device tree"),
        );
    }
    let is_chosen = |other: &PciFunction| chosen.iter().any(|one| one.address == other.address);
    let is_behind_same = |other: &&PciFunction| {
        other.behind.is_some() && other.behind == function.behind && !is_chosen(other)
    };
    if let Some(other) = description.functions.iter().find(is_behind_same) {
        found.push(
            problem(location(), "its root port has other functions")
                .values(
                    format!("{} is behind the same root port", other.address),
                    "all of them in the cell",
                )
                .fix("request these functions too"),
        );
    }
    let Some(interrupt) = function.interrupt.as_ref().map(|one| one.number) else {
        return;
    };
    let shares = |other: &&PciFunction| {
        let is_port = Some(&other.address) == function.behind.as_ref();
        other.raises(interrupt) && !is_port && !is_chosen(other)
    };
    let others: Vec<_> = description.functions.iter().filter(shares).collect();
    if !others.is_empty() {
        let others: Vec<&str> = others.iter().map(|one| one.address.as_str()).collect();
        found.push(
            problem(location(), "other functions raise the same interrupt")
                .values(
                    format!("{} raise {interrupt}", others.join(", ")),
                    "an interrupt of its own",
                )
                .fix("request these functions too, or use another slot"),
        );
    } else if description.requested_interrupts.contains(&interrupt) {
        found.push(
            problem(location(), "Linux uses its interrupt")
                .values(format!("interrupt {interrupt}"), "no handler")
                .fix("unbind the driver that has it: grep . /sys/kernel/irq/*/actions"),
        );
    }
    let has = |cell: &&CellInUse| {
        let mut grants = cell.configuration.interrupts.iter();
        grants.any(|grant| grant.number == interrupt)
    };
    if let Some(cell) = in_use.cells.iter().find(has) {
        found.push(
            problem(location(), "another cell has its interrupt")
                .values(format!("cell {}", cell.name), "no owner")
                .fix(format!("rampart cell destroy {}", cell.name)),
        );
    }
}

/// Returns the host bridge of a Linux cell for these functions, with its configuration space at this address, and a note
/// for each function with its address there.
pub(super) fn host_bridge(
    description: &Description,
    functions: &[CellFunction],
    cell: &str,
    space: u64,
    found: &mut Vec<Finding>,
) -> Option<TreeNode> {
    const MEMORY_32: u32 = 0x0200_0000;
    const MEMORY_64: u32 = 0x0300_0000;
    let mut windows = Vec::new();
    let mut map = Vec::new();
    let mut is_coherent = true;
    for (device, own) in (0_u32..).zip(functions) {
        let all = &mut description.functions.iter();
        let function = all.find(|function| function.address == own.address)?;
        for base in function.bases() {
            let [upper, lower, bytes @ ..] = place(base.span.start, base.span.bytes);
            let kind = if base.span.end() > 1 << 32 {
                MEMORY_64
            } else {
                MEMORY_32
            };
            windows.extend([kind, upper, lower, upper, lower]);
            windows.extend(bytes);
        }
        if let Some(interrupt) = &function.interrupt {
            map.extend([device << 11, 0, 0, function.pin, INTERRUPT_CONTROLLER]);
            map.extend([0, interrupt.number - 32, LEVEL_HIGH]);
        }
        let bridge = description.devices.iter();
        let bridge = bridge.filter(|bridge| Some(&bridge.path) == function.bridge.as_ref());
        let mut properties = bridge.flat_map(|bridge| &bridge.contents.properties);
        is_coherent &= properties.any(|(name, _)| name == "dma-coherent");
        found.push(Finding::new(
            Severity::Note,
            format!("cell {cell}, PCI function {}", own.address),
            format!("it is 0000:00:{device:02x}.0 in the cell"),
        ));
    }
    let mut properties = vec![
        ("compatible", text("pci-host-ecam-generic")),
        ("device_type", text("pci")),
        ("#address-cells", words(&[3])),
        ("#size-cells", words(&[2])),
        ("#interrupt-cells", words(&[1])),
        ("bus-range", words(&[0, 0])),
        ("linux,pci-domain", words(&[0])),
        ("reg", words(&place(space, SPACE_BYTES))),
        ("ranges", words(&windows)),
        ("interrupt-map-mask", words(&[0xf800, 0, 0, 7])),
        ("interrupt-map", words(&map)),
    ];
    if is_coherent {
        properties.push(("dma-coherent", Vec::new()));
    }
    let properties = properties.into_iter();
    (!functions.is_empty()).then(|| TreeNode {
        name: format!("pcie@{space:x}"),
        properties: properties
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        ..TreeNode::default()
    })
}
