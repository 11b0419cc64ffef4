// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a machine that cells can own.

use rampart_model::device_tree::{
    Description, DeviceInterrupt, InterruptKind, LastCache, PciFunction, RangeUse, Smmu, SmmuOwner,
    TreeDevice,
};
use rampart_model::{AddressSpan, ByteSize};

use crate::element::{Element, ListItem, Pair};
use crate::plan_picture::{item, lines_table};

/// Returns the description of a machine for cells: CPUs, memory, the interrupt controller, devices
/// and findings. Leaves out disabled devices unless `all` is set.
#[must_use]
pub fn cell_description(description: &Description, all: bool) -> Vec<Element> {
    let model = description.model.as_deref().unwrap_or("unknown model");
    let mut elements = vec![
        Element::heading(
            1,
            format!("{model} ({})", description.compatible.join(", ")),
        ),
        Element::heading(2, "CPUs"),
        cpus(description),
        Element::heading(2, "Memory"),
        memory(description),
        Element::heading(2, "Last-level cache"),
        cache(description.last_cache.as_ref()),
        Element::heading(2, "Interrupt controller"),
        controller(description),
    ];
    if !description.smmus.is_empty() {
        elements.push(Element::heading(2, "SMMU"));
        let items = description.smmus.iter().map(smmu).collect();
        elements.push(Element::List { items });
    }
    elements.push(Element::heading(2, "Devices"));
    let shown = |device: &&TreeDevice| all || device.enabled;
    let items: Vec<ListItem> = description
        .devices
        .iter()
        .filter(shown)
        .map(device)
        .collect();
    let hidden = description.devices.len() - items.len();
    elements.push(Element::List { items });
    if hidden > 0 {
        elements.push(Element::paragraph(format!(
            "{hidden} more are disabled; --all lists them."
        )));
    }
    if !description.functions.is_empty() {
        elements.push(Element::heading(2, "PCI functions"));
        let items = description.functions.iter();
        let items = items.map(|one| function(one, description)).collect();
        elements.push(Element::List { items });
    }
    elements.push(Element::heading(2, "Findings"));
    if description.findings.is_empty() {
        elements.push(Element::paragraph("none"));
    }
    let findings = description.findings.iter();
    elements.push(Element::List {
        items: findings
            .map(|finding| item(finding.severity.name(), finding.to_string()))
            .collect(),
    });
    elements
}

fn cpus(description: &Description) -> Element {
    let rows = description.cpus.iter().map(|cpu| {
        vec![
            cpu.number.to_string(),
            format!("{:#x}", cpu.mpidr),
            cpu.compatible.first().cloned().unwrap_or_default(),
            cpu.enable_method
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
        ]
    });
    lines_table(&["CPU", "MPIDR", "type", "enable-method"], rows)
}

fn cache(cache: Option<&LastCache>) -> Element {
    let Some(cache) = cache else {
        return Element::paragraph(
            "Not described: cells get no share of it. The driver reads it from the processor (rampart cell enable).",
        );
    };
    let size = cache.bytes().map_or_else(
        || "unknown size".to_owned(),
        |bytes| ByteSize(bytes).to_string(),
    );
    let way = ByteSize(cache.sets.saturating_mul(cache.line_bytes));
    let colours = match cache.colours() {
        1 => "1 colour: cells get no share of it".to_owned(),
        colours => format!("{colours} colours for shares of cells"),
    };
    Element::paragraph(format!(
        "{size}, {} sets of lines of {} bytes, {way} a way, {colours} (from {})",
        cache.sets,
        cache.line_bytes,
        cache.source.text()
    ))
}

fn memory(description: &Description) -> Element {
    let line = |what: &str, span: &AddressSpan, path: &str| {
        let text = format!("{span}, {}  {path}", ByteSize(span.bytes));
        item(what, text.trim_end())
    };
    let all = description.memory.iter().map(|span| line("all", span, ""));
    let linux = description.linux_memory.iter().flatten();
    let linux = linux.map(|span| line("used by Linux", span, ""));
    let reserved = description.reserved.iter();
    let reserved = reserved.map(|part| line("in use", &part.span, &part.path));
    let kept = description.kept.iter();
    let kept = kept.map(|span| line("reserved for cells", span, ""));
    Element::List {
        items: all.chain(linux).chain(reserved).chain(kept).collect(),
    }
}

fn controller(description: &Description) -> Element {
    let Some(controller) = &description.interrupt_controller else {
        return Element::paragraph("unknown");
    };
    let spans = |spans: &[AddressSpan]| spans.iter().map(|span| span.to_string().into()).collect();
    let version = format!("GICv{}  {}", controller.version, controller.path);
    let mut pairs = vec![
        Pair::new("version", version),
        Pair::new("distributor", controller.distributor.to_string()),
        Pair::lines("redistributors", spans(&controller.redistributors)),
        Pair::lines("CPU interface", spans(controller.cpu_interface.as_slice())),
        Pair::lines("ITS", spans(&controller.translation_services)),
    ];
    pairs.retain(|pair| !pair.value.is_empty());
    Element::Pairs { pairs }
}

fn smmu(smmu: &Smmu) -> ListItem {
    let owner = match smmu.owner {
        SmmuOwner::Hypervisor => "of the hypervisor: it confines the DMA of the streams",
        SmmuOwner::Linux => {
            "of Linux: the hypervisor confines no DMA; fix: status = \"reserved\" in its node of the device tree"
        }
        SmmuOwner::Nobody => {
            "disabled: no DMA is confined; fix, if it has power and clocks: status = \"reserved\" in its node of the \
             device tree"
        }
    };
    let streams = smmu.streams.iter();
    let streams = streams.map(|(first, count)| format!("{first:#x} to {:#x}", first + (count - 1)));
    let streams: Vec<String> = streams.collect();
    let streams = (!streams.is_empty()).then(|| item("streams", streams.join(", ")));
    ListItem {
        items: streams.into_iter().collect(),
        ..item(&smmu.path, owner)
    }
}

fn device(device: &TreeDevice) -> ListItem {
    let mut text = device.compatible.first().cloned().unwrap_or_default();
    let linux = device.linux.as_ref();
    if let Some(driver) = linux.and_then(|linux| linux.driver.as_ref()) {
        text.push_str(&format!(" (driver {driver})"));
    }
    if !device.enabled {
        text.push_str(", disabled");
    }
    let ranges = device.ranges.iter().map(|range| {
        let purpose = match range.purpose {
            RangeUse::Registers => "registers",
            RangeUse::PciWindow => "PCI window",
        };
        let name = range.name.as_deref().unwrap_or("");
        item(purpose, format!("{}  {name}", range.span()).trim_end())
    });
    let interrupts: Vec<String> = device.interrupts.iter().map(interrupt).collect();
    let interrupts = (!interrupts.is_empty()).then(|| item("interrupts", interrupts.join(", ")));
    let references = device.references.iter().map(|reference| {
        let arguments: Vec<String> = reference.arguments.iter().map(u32::to_string).collect();
        let path = Some(reference.path.as_str()).filter(|path| !path.is_empty());
        let text = format!("{} {}", path.unwrap_or("none"), arguments.join(" "));
        let kinds = ["clocks", "resets", "power-domains"];
        let served = path.is_some()
            && reference.frequency.is_none()
            && kinds.contains(&reference.property.as_str());
        // The root serves it to a Linux cell that has the device.
        let by = if served { " (SCMI)" } else { "" };
        item(&reference.property, format!("{}{by}", text.trim_end()))
    });
    ListItem {
        items: ranges.chain(interrupts).chain(references).collect(),
        ..item(&device.path, text)
    }
}

fn function(function: &PciFunction, description: &Description) -> ListItem {
    let text = format!(
        "{:04x}:{:04x}, class {:06x}",
        function.vendor, function.device, function.class
    );
    let memory = function.bases().map(|base| {
        let text = format!("{}  {}", base.span, base.number);
        item("memory", text)
    });
    let own = function.interrupt.as_ref();
    let raised = own.map(|one| item("interrupts", interrupt(one)));
    let stream = function.stream.as_ref().map(|stream| {
        let arguments: Vec<String> = stream.arguments.iter().map(u32::to_string).collect();
        item("stream", format!("{} {}", stream.path, arguments.join(" ")))
    });
    let others = description.functions.iter().filter(|other| {
        other.address != function.address && own.is_some_and(|own| other.raises(own.number))
    });
    let others: Vec<&str> = others.map(|other| other.address.as_str()).collect();
    let shared = (!others.is_empty()).then(|| item("raise the same", others.join(", ")));
    let obstacles = function.obstacles.iter();
    let obstacles = obstacles.map(|one| item("not for a cell", one.to_string()));
    ListItem {
        items: memory
            .chain(raised)
            .chain(shared)
            .chain(stream)
            .chain(obstacles)
            .collect(),
        ..item(&function.address, text)
    }
}

fn interrupt(interrupt: &DeviceInterrupt) -> String {
    let number = interrupt.number;
    let edge = if interrupt.edge { " edge" } else { "" };
    let through = interrupt.controller.as_deref().unwrap_or("");
    match interrupt.kind {
        InterruptKind::Shared if through.is_empty() => {
            format!("{number} (SPI {}{edge})", number - 32)
        }
        InterruptKind::Shared => format!("{number} (SPI {}{edge} through {through})", number - 32),
        InterruptKind::Private => format!("{number} (PPI {})", number - 16),
        InterruptKind::Extended => format!("{number} (extended SPI)"),
        InterruptKind::Elsewhere => format!("{number} of {through}"),
    }
}
