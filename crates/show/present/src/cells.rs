// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cells of a machine under the hypervisor.

use rampart_model::{
    AddressSpan, CellListEntry, CpuSet, FailureReport, Finding, MemoryReport, RefusedDma,
};
use serde::Serialize;

use crate::element::{Column, ColumnKind, Element, Entry, ListItem, Pair, Row, Table, TableStyle};
use crate::plan_picture::item;

/// Memory of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CellMemory {
    /// Its physical location.
    #[serde(flatten)]
    pub span: AddressSpan,
    /// Start address in the cell's address space.
    pub guest: u64,
    /// Name of a shared region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The resources of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CellResources {
    /// Its name.
    pub name: String,
    /// Its number; `None` if it was not created.
    pub number: Option<u32>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its own memory.
    pub memory: CellMemory,
    /// Its shared regions.
    pub shared: Vec<CellMemory>,
    /// The nodes of its devices in the device tree.
    pub devices: Vec<String>,
    /// Its doorbells, as interrupt numbers.
    pub bells: Vec<u32>,
    /// Notes and warnings.
    pub findings: Vec<Finding>,
}

/// Returns the resources of a cell that was created, or that would be created.
#[must_use]
pub fn cell_resources(cell: &CellResources) -> Vec<Element> {
    let title = match cell.number {
        Some(number) => format!("created cell {}, number {number}", cell.name),
        None => format!("resources of cell {}, which is not created:", cell.name),
    };
    let memory = |what: &str, region: &CellMemory| {
        let name = region.name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(", name {name}"));
        let text = format!("{}, in the cell at {:#x}{name}", region.span, region.guest);
        Pair::new(what, text)
    };
    let mut pairs = vec![
        Pair::new("CPUs", cell.cpus.to_string()),
        memory("memory", &cell.memory),
    ];
    pairs.extend(cell.shared.iter().map(|region| memory("shared", region)));
    pairs.extend(cell.devices.iter().map(|node| Pair::new("device", node)));
    let bells = cell.bells.iter();
    pairs.extend(bells.map(|bell| Pair::new("bell", format!("interrupt {bell}"))));
    vec![Element::paragraph(title), Element::Pairs { pairs }]
}

/// Returns the cells with their states, if `verbose` also with their resources and failures.
#[must_use]
pub fn cell_list(cells: &[CellListEntry], verbose: bool) -> Vec<Element> {
    let columns = [
        (ColumnKind::Figure, "number"),
        (ColumnKind::Name, "cell"),
        (ColumnKind::Name, "state"),
        (ColumnKind::Name, "CPUs"),
        (ColumnKind::Text, "reason of the stop"),
    ];
    let rows = cells.iter().map(|cell| {
        Row::new(vec![
            Entry::from(cell.number.to_string()),
            Entry::from(&cell.name),
            Entry::from(&cell.state),
            Entry::from(cell.cpus.to_string()),
            Entry::from(cell.stop_reason.as_deref().unwrap_or_default()),
        ])
    });
    let mut elements = vec![Element::Table(Table::new(
        TableStyle::Figures,
        "Cells",
        columns.map(|(kind, name)| Column::new(kind, name)).into(),
        rows.collect(),
    ))];
    for cell in cells.iter().filter(|_| verbose) {
        elements.push(Element::heading(2, format!("Cell {}", cell.name)));
        elements.push(resources(cell));
        if let Some(failure) = &cell.failure {
            failed(&mut elements, failure);
        }
    }
    elements
}

fn resources(cell: &CellListEntry) -> Element {
    let memory = |part: &MemoryReport| {
        let mut text = format!("{}, in the cell at {:#x}", part.span, part.guest);
        if let Some(colours) = &part.colours {
            text.push_str(&format!(", colours {colours} of 32"));
        }
        if let Some(writer) = &part.writer {
            text.push_str(&format!(", written by {writer}"));
        }
        if let Some(name) = &part.name {
            text.push_str(&format!(", name {name}"));
        }
        Pair::new(&part.purpose, text)
    };
    let mut pairs: Vec<Pair> = cell.memory.iter().map(memory).collect();
    if !cell.interrupts.is_empty() {
        let all: Vec<String> = cell.interrupts.iter().map(u32::to_string).collect();
        pairs.push(Pair::new("interrupts", all.join(", ")));
    }
    if cell.watchdog_milliseconds > 0 {
        let limit = format!("{} ms", cell.watchdog_milliseconds);
        pairs.push(Pair::new("watchdog", limit));
    }
    pairs.push(Pair::new("starts", cell.starts.to_string()));
    let refused = cell.refused_dma.iter().map(refused_dma);
    pairs.extend(refused.map(|text| Pair::new("refused DMA", text)));
    Element::Pairs { pairs }
}

/// Returns one line about an access that the SMMU refused.
#[must_use]
pub fn refused_dma(refused: &RefusedDma) -> String {
    format!(
        "stream {:#x}, {} of address {}, event {} of the SMMU",
        refused.stream, refused.access, refused.address, refused.event
    )
}

fn failed(elements: &mut Vec<Element>, failure: &FailureReport) {
    elements.push(Element::Pairs {
        pairs: vec![Pair::new("latest failure", &failure.reason)],
    });
    // Spaces of aligned columns are not broken.
    let fixed = |line: String| Element::paragraph(line.replace(' ', "\u{a0}"));
    elements.push(fixed(format!(
        "  pc {}  pstate {}  esr {}  far {}  address {}",
        failure.program_counter,
        failure.processor_state,
        failure.syndrome,
        failure.virtual_address,
        failure.guest_address
    )));
    for (row, registers) in failure.registers.chunks(4).enumerate() {
        let named = registers.iter().enumerate().map(|(column, value)| {
            let name = format!("x{}", 4 * row + column);
            format!("{name:>3} {value:<18}")
        });
        let line: Vec<String> = named.collect();
        elements.push(fixed(format!("  {}", line.join("  ").trim_end())));
    }
}

/// Returns the exits of cells to the hypervisor, by CPU and reason.
#[must_use]
pub fn cell_exits(cells: &[CellListEntry]) -> Vec<Element> {
    let mut elements = Vec::new();
    for cell in cells {
        elements.push(Element::heading(
            2,
            format!("Cell {} ({})", cell.name, cell.state),
        ));
        let items = cell.by_cpu.iter().map(|cpu| {
            let name = cpu.number.map_or_else(
                || format!("CPU with MPIDR {:#x}", cpu.mpidr),
                |number| format!("CPU {number}"),
            );
            let reasons = cpu.by_reason.iter();
            ListItem {
                items: reasons
                    .map(|exit| item(&exit.reason, exit.count.to_string()))
                    .collect(),
                ..item(
                    name,
                    format!(
                        "{} exits to the hypervisor, {} of them for interrupts",
                        cpu.exits, cpu.interrupt_exits
                    ),
                )
            }
        });
        elements.push(Element::List {
            items: items.collect(),
        });
    }
    elements
}
