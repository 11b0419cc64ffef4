// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selects the devices of a cell: whole pages of registers, and interrupts, that are not in use
//! elsewhere.

use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion, StreamGrant};
use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_model::{Finding, Severity};

use super::{CellInUse, CellRequest, InUse, functions, problem};
use crate::describe::{
    AddressRange, AddressSpan, Description, InterruptKind, PciFunction, RangeUse, Reference,
    TreeDevice, spans,
};
use crate::pci::CellFunction;
use crate::system_configuration::reserved_smmu;

/// What the devices of a cell need, and their paths.
#[derive(Debug, Default)]
pub(super) struct DeviceResources {
    pub(super) paths: Vec<String>,
    pub(super) regions: Vec<MemoryRegion>,
    pub(super) interrupts: Vec<u32>,
    pub(super) streams: Vec<StreamGrant>,
    /// PCI functions, ordered by address.
    pub(super) functions: Vec<CellFunction>,
}

/// Returns the resources of the requested devices. Adds a finding for each device that the cell cannot have.
pub(super) fn resources(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    found: &mut Vec<Finding>,
) -> DeviceResources {
    let mut chosen: Vec<&TreeDevice> = Vec::new();
    let requested = request.devices.iter();
    for requested in requested.filter(|one| !PciFunction::is_address(one)) {
        match device(description, requested) {
            Ok(device) if chosen.iter().any(|other| other.path == device.path) => {}
            Ok(device) => chosen.push(device),
            Err(what) => found.push(
                problem(format!("cell {}, device {requested}", request.name), what)
                    .fix("rampart cell describe --all lists the devices and their paths"),
            ),
        }
    }
    let mut resources = DeviceResources::default();
    let mut pages = Vec::new();
    for device in &chosen {
        let before = found.len();
        refusals(description, in_use, request, device, &chosen, found);
        if found[before..]
            .iter()
            .any(|one| one.severity == Severity::Error)
        {
            continue;
        }
        pages.extend(device.ranges.iter().map(|range| in_pages(&range.span())));
        for number in device.shared_interrupts() {
            if !resources.interrupts.contains(&number) {
                resources.interrupts.push(number);
            }
        }
        resources
            .streams
            .extend(confined_streams(description, device));
        resources.paths.push(device.path.clone());
    }
    pages.extend(functions::resources(
        description,
        in_use,
        request,
        &mut resources,
        found,
    ));
    let flags = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE;
    resources.regions = spans::united(pages)
        .into_iter()
        .map(|span| MemoryRegion {
            physical: span.start,
            guest: span.start,
            bytes: span.bytes,
            flags: flags.bits(),
            colours: 0,
        })
        .collect();
    if !resources.paths.is_empty() {
        earlier_standbys(in_use, request, found);
    }
    resources
}

/// Adds a warning for each standby: its device tree has the devices of cells disabled that existed when it was kept.
fn earlier_standbys(in_use: &InUse, request: &CellRequest, found: &mut Vec<Finding>) {
    let standbys = in_use.cells.iter().filter(|cell| cell.is_standby());
    found.extend(standbys.map(|standby| {
        Finding::new(
            Severity::Warning,
            format!("cell {}, devices", request.name),
            format!(
                "standby {} is older than this cell: its kernel would probe these devices",
                standby.name
            ),
        )
        .fix(format!(
            "run `rampart cell destroy {name}` and `rampart cell standby {name}` after this",
            name = standby.name
        ))
    }));
}

/// Returns the requested device.
pub(super) fn device<'a>(
    description: &'a Description,
    requested: &str,
) -> Result<&'a TreeDevice, String> {
    let address = requested
        .strip_prefix("0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let is_meant = |device: &&TreeDevice| {
        let name = device.name();
        let plain = name.split_once('@').map_or(name, |(plain, _)| plain);
        device.path == requested
            || name == requested
            || plain == requested
            || address.is_some_and(|address| {
                device
                    .ranges
                    .first()
                    .is_some_and(|range| range.start == address)
            })
    };
    let all: Vec<&TreeDevice> = description.devices.iter().filter(is_meant).collect();
    match all[..] {
        [] => Err("the device tree has no such device".to_owned()),
        [one] => Ok(one),
        _ => {
            let exact = all
                .iter()
                .find(|device| device.path == requested || device.name() == requested);
            exact.copied().ok_or_else(|| {
                let paths: Vec<&str> = all.iter().map(|device| device.path.as_str()).collect();
                format!("the name is ambiguous: {}", paths.join(", "))
            })
        }
    }
}

pub(super) fn in_pages(span: &AddressSpan) -> AddressSpan {
    let start = span.start & !(PAGE_BYTES - 1);
    AddressSpan::between(start, span.end().next_multiple_of(PAGE_BYTES))
}

fn refusals(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    device: &TreeDevice,
    chosen: &[&TreeDevice],
    found: &mut Vec<Finding>,
) {
    let location = format!("cell {}, device {}", request.name, device.path);
    let controller = description.interrupt_controller.as_ref();
    if controller.is_some_and(|controller| device.path.starts_with(&controller.path)) {
        found.push(
            problem(
                location,
                "the interrupt controller cannot be given to a cell",
            )
            .fix("leave it out: each cell has its own view of it"),
        );
        return;
    }
    if device
        .ranges
        .iter()
        .any(|range| range.purpose == RangeUse::PciWindow)
    {
        found.push(
            problem(location, "a PCI host bridge cannot be given to a cell")
                .values("the whole bridge", "a function of it, such as 0000:00:04.0")
                .fix("rampart cell describe lists the functions"),
        );
        return;
    }
    if let Some(linux) = &device.linux
        && let Some(driver) = &linux.driver
    {
        let fix = match linux.stays {
            true => format!(
                "leave the device with the root ({driver} cannot be unbound), or disable it in the machine's device \
                 tree and restart"
            ),
            false => format!(
                "echo {} >/sys/bus/{}/drivers/{driver}/unbind",
                linux.device, linux.bus
            ),
        };
        found.push(
            problem(location.clone(), "Linux uses it")
                .values(format!("driver {driver}"), "no driver")
                .fix(fix),
        );
    }
    sharing_devices(description, device, chosen, &location, found);
    owners(in_use, device, &location, found);
    for interrupt in &device.interrupts {
        if interrupt.kind == InterruptKind::Elsewhere {
            let through = interrupt
                .controller
                .as_deref()
                .unwrap_or("another controller");
            found.push(
                Finding::new(
                    Severity::Warning,
                    location.clone(),
                    format!(
                        "its interrupt {} goes through {through}, so it does not reach the cell",
                        interrupt.number
                    ),
                )
                .fix(format!("give {through} to the cell, too")),
            );
        }
    }
    unconfined_dma(description, request, device, location, found);
}

/// Returns the streams of a device behind the SMMU that the hypervisor has.
fn confined_streams(description: &Description, device: &TreeDevice) -> Vec<StreamGrant> {
    let Some((_, smmu)) = reserved_smmu(description) else {
        return Vec::new();
    };
    let of_smmu = |one: &&Reference| one.property == "iommus" && one.path == smmu.path;
    let streams = device.references.iter().filter(of_smmu);
    streams
        .filter_map(|one| one.arguments.first())
        .map(|first| StreamGrant {
            first: *first,
            count: 1,
            function: 0,
        })
        .collect()
}

/// Refuses a device with DMA that no SMMU confines, unless the request has a reason. A device that only uses a DMA
/// controller (`dmas`) has none: that controller does.
fn unconfined_dma(
    description: &Description,
    request: &CellRequest,
    device: &TreeDevice,
    location: String,
    found: &mut Vec<Finding>,
) {
    let behind = device
        .references
        .iter()
        .filter(|one| one.property == "iommus");
    let is_controller = device
        .contents
        .properties
        .iter()
        .any(|(name, _)| name == "#dma-cells");
    let confined = confined_streams(description, device).len();
    let behind = behind.count();
    if behind == confined && (behind > 0 || !is_controller) {
        return;
    }
    const ANY: &str = "the device can write any memory on behalf of the cell";
    let named = |name: &String| *name == device.path || *name == device.name();
    let reason = request.unconfined_dma.iter().find(|(name, _)| named(name));
    found.push(match reason {
        Some((_, reason)) if !reason.trim().is_empty() => {
            Finding::new(Severity::Warning, location, ANY).values(format!("accepted: {reason}"), "an SMMU")
        }
        _ => problem(location, ANY)
            .values(
                "no SMMU of the hypervisor confines it",
                "an SMMUv3 with status = \"reserved\", or a reason",
            )
            .fix(format!(
                "leave the device with the root, or accept it: --unconfined-dma '{}=REASON' (in a plan: \
                 unconfined-dma)",
                device.path
            )),
    });
}

/// Adds findings about other enabled devices in the same pages or with the same interrupts.
fn sharing_devices(
    description: &Description,
    device: &TreeDevice,
    chosen: &[&TreeDevice],
    location: &str,
    found: &mut Vec<Finding>,
) {
    let own: Vec<AddressSpan> = device
        .ranges
        .iter()
        .map(|range| in_pages(&range.span()))
        .collect();
    let related = |other: &TreeDevice| {
        let above = format!("{}/", other.path);
        let below = format!("{}/", device.path);
        device.path.starts_with(&above) || other.path.starts_with(&below)
    };
    let mut beside = Vec::new();
    let mut raising = Vec::new();
    for other in description.devices.iter().filter(|other| other.enabled) {
        if chosen.iter().any(|one| one.path == other.path) || related(other) {
            continue;
        }
        let theirs: Vec<AddressSpan> = other.ranges.iter().map(AddressRange::span).collect();
        if !spans::common(&own, &theirs).is_empty() {
            beside.push(other.path.as_str());
        }
        let shared = |number: &u32| other.shared_interrupts().any(|theirs| theirs == *number);
        if device.shared_interrupts().any(|number| shared(&number)) {
            raising.push(other.path.as_str());
        }
    }
    if !beside.is_empty() {
        found.push(
            problem(
                location.to_owned(),
                "other devices are in the same pages of 4 KiB",
            )
            .values(beside.join(", "), "pages of its own")
            .fix("request these devices too, or single registers (--register)"),
        );
    }
    if !raising.is_empty() {
        found.push(
            problem(
                location.to_owned(),
                "other devices raise the same interrupt",
            )
            .values(raising.join(", "), "an interrupt of its own")
            .fix("request these devices too"),
        );
    }
    let memory = spans::common(&own, &description.memory);
    if let Some(span) = memory.first() {
        found.push(
            problem(location.to_owned(), "a range of the device overlaps memory")
                .values(span.to_string(), "registers outside memory")
                .fix("leave the device with the root"),
        );
    }
}

/// Adds findings about cells that have the device.
fn owners(in_use: &InUse, device: &TreeDevice, location: &str, found: &mut Vec<Finding>) {
    let has = |cell: &&CellInUse| {
        let memory = cell.configuration.memory.iter();
        let spans: Vec<AddressSpan> = memory
            .map(|region| AddressSpan {
                start: region.physical,
                bytes: region.bytes,
            })
            .collect();
        let ranges = device.ranges.iter().map(|range| in_pages(&range.span()));
        let interrupts = &cell.configuration.interrupts;
        let registers = cell.configuration.registers.iter().map(|register| {
            in_pages(&AddressSpan {
                start: register.address,
                bytes: register.width.into(),
            })
        });
        let registers: Vec<AddressSpan> = registers.collect();
        ranges.clone().any(|range| {
            spans
                .iter()
                .chain(&registers)
                .any(|span| span.meets(&range))
        }) || device
            .shared_interrupts()
            .any(|number| interrupts.iter().any(|grant| grant.number == number))
    };
    if let Some(cell) = in_use.cells.iter().find(has) {
        found.push(
            problem(
                location.to_owned(),
                "another cell owns the device or a part of it",
            )
            .values(format!("cell {}", cell.name), "no owner")
            .fix(format!("rampart cell destroy {}", cell.name)),
        );
    }
}
