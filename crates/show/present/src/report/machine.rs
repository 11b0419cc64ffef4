// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything about the machine that a figure depends on. Only the page has it.

use std::collections::BTreeMap;

use rampart_model::{Bench, CacheKind, Machine, plural};

use super::Report;
use crate::element::{
    Column, ColumnKind, Element, ListItem, Pair, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

pub(super) fn machine(report: &Report<'_>) -> Vec<Element> {
    let machine = &report.evaluation.machine;
    let topology = &machine.topology;
    let mut elements = vec![
        Element::section("machine", "The machine", "Machine"),
        Element::Columns {
            columns: vec![
                vec![Element::Pairs {
                    pairs: software(machine, &report.evaluation.bench),
                }],
                vec![Element::Pairs {
                    pairs: hardware(machine),
                }],
            ],
            framed: false,
        },
        Element::folded(
            format!(
                "Topology: {}, {}, {}",
                plural(topology.cpus.len(), "CPU"),
                plural(topology.caches.len(), "cache"),
                plural(topology.nodes.len(), "memory node")
            ),
            vec![
                Element::Columns {
                    columns: vec![vec![caches(machine)], vec![cores(machine)]],
                    framed: false,
                },
                nodes(machine),
            ],
        ),
    ];
    if !machine.mitigations.is_empty() {
        let pairs = machine.mitigations.iter();
        let pairs = pairs.map(|(name, state)| Pair::new(name, state)).collect();
        elements.push(Element::folded(
            "Mitigations",
            vec![Element::Pairs { pairs }],
        ));
    }
    vec![Element::detail(elements)]
}

fn software(machine: &Machine, bench: &Bench) -> Vec<Pair> {
    let tick = machine
        .tick_rate
        .map_or_else(String::new, |rate| format!(", {rate}\u{a0}Hz"));
    let virtualisation = &machine.virtualisation;
    let mut virtual_words = format::virtualisation(machine, bench);
    if let Some(steal) = virtualisation.steal {
        virtual_words.push_str(&format!(
            ", {} of all CPU time stolen",
            format::percent(steal)
        ));
    }
    if let Some(container) = &virtualisation.container {
        virtual_words.push_str(&format!("; this tool ran in a container ({container})"));
    }
    let preemption = format::preemption(machine.preemption);
    let mut pairs = vec![
        Pair::new(
            "kernel",
            format!("{} {preemption}{tick}", machine.kernel_release),
        ),
        Pair::new("version", &machine.kernel_version),
        Pair::new(
            "command line",
            Text::of(SpanStyle::Code, &machine.command_line),
        ),
    ];
    let mut optional = |name: &str, value: &Option<String>| {
        pairs.extend(value.as_ref().map(|value| Pair::new(name, value)));
    };
    optional("distribution", &machine.distribution);
    optional("product", &machine.product);
    optional("microcode", &machine.microcode);
    pairs.push(Pair::new(
        "processor",
        format!("{} ({})", machine.processor, machine.architecture),
    ));
    pairs.push(Pair::new("memory", format::bytes(machine.memory)));
    pairs.push(Pair::new("virtualisation", virtual_words));
    pairs
}

fn hardware(machine: &Machine) -> Vec<Pair> {
    let topology = &machine.topology;
    let none = |cpus: &rampart_model::CpuSet| match cpus.is_empty() {
        true => "none".to_owned(),
        false => cpus.to_string(),
    };
    let mut online = topology.online.to_string();
    if topology.possible != topology.online {
        online.push_str(&format!(" of possible {}", topology.possible));
    }
    let clock = &machine.clock_source;
    let mut pairs = vec![
        Pair::new("CPUs online", online),
        Pair::new("CPUs allowed", topology.allowed.to_string()),
        Pair::new("isolated", none(&topology.isolated)),
        Pair::new("nohz_full", none(&topology.nohz_full)),
        Pair::new(
            "clock source",
            format!("{} (of {})", clock.current, clock.available.join(", ")),
        ),
        Pair::lines("frequency", frequency(machine)),
        Pair::new("idle states", idle_states(machine)),
        Pair::lines("throttling", throttling(machine)),
        Pair::new("firmware interrupts", firmware_interrupts(machine)),
        Pair::new("control groups", &machine.control_groups),
    ];
    let pages = machine.transparent_huge_pages.as_ref();
    pairs.extend(pages.map(|pages| Pair::new("huge pages", pages)));
    pairs
}

fn frequency(machine: &Machine) -> Vec<Text> {
    let facts = &machine.frequency;
    let mut lines: Vec<String> = Vec::new();
    lines.extend(
        facts
            .driver
            .as_ref()
            .map(|driver| format!("driver {driver}")),
    );
    lines.extend(
        facts
            .governors
            .iter()
            .map(|(name, cpus)| format!("{name} on {}", cpus.named())),
    );
    lines.extend(
        facts.range_khz.map(|(low, high)| {
            format!("{}–{}\u{a0}MHz", low as f64 / 1000.0, high as f64 / 1000.0)
        }),
    );
    lines.extend(facts.boost.map(|boost| {
        let word = if boost { "boost allowed" } else { "boost off" };
        word.to_owned()
    }));
    if lines.is_empty() {
        lines.push("no frequency scaling found".to_owned());
    }
    lines.into_iter().map(Text::from).collect()
}

fn idle_states(machine: &Machine) -> String {
    if machine.idle_states.is_empty() {
        return "none found".to_owned();
    }
    let states = machine.idle_states.iter().map(|state| {
        let off = if state.disabled { " (off)" } else { "" };
        format!("{} {}{off}", state.name, format::time(state.exit_latency))
    });
    let driver = machine.idle_driver.as_deref().unwrap_or("no driver");
    format!("{driver}: {}", states.collect::<Vec<_>>().join(", "))
}

fn throttling(machine: &Machine) -> Vec<Text> {
    let facts = &machine.throttling;
    let limit = facts.runtime.map_or_else(
        || "no limit for real-time threads".to_owned(),
        |runtime| {
            let each = facts
                .period
                .map(|period| format!(" of each {}", format::time(period)));
            format!(
                "real-time threads get {}{}",
                format::time(runtime),
                each.unwrap_or_default()
            )
        },
    );
    let mut lines = vec![limit.into()];
    lines.extend(facts.group_scheduling.map(|budgets| match budgets {
        true => "budgets by control group".into(),
        false => Text::from("no budgets by control group"),
    }));
    lines.extend(facts.fair_server.map(|(runtime, period)| {
        let (runtime, period) = (format::time(runtime), format::time(period));
        Text::from(format!("fair server {runtime} of each {period}"))
    }));
    lines
}

fn firmware_interrupts(machine: &Machine) -> String {
    let counts = machine.system_management_interrupts;
    match (counts.at_start, counts.at_end) {
        (Some(start), Some(end)) => format!(
            "{} during the evaluation ({} before)",
            format::grouped(end.saturating_sub(start)),
            format::grouped(start)
        ),
        _ => "not readable here".to_owned(),
    }
}

fn caches(machine: &Machine) -> Element {
    let mut groups: BTreeMap<(u32, &str, u64), Vec<String>> = BTreeMap::new();
    for cache in &machine.topology.caches {
        let kind = match cache.kind {
            CacheKind::Data => " data",
            CacheKind::Instruction => " instruction",
            CacheKind::Unified => "",
        };
        let sharers = groups.entry((cache.level, kind, cache.size)).or_default();
        sharers.push(format!("{{{}}}", cache.shared_by));
    }
    let rows = groups.into_iter().map(|((level, kind, size), sharers)| {
        Row::new(vec![
            format!("L{level}{kind}, {}", format::bytes(size)).into(),
            sharers.join(" ").into(),
        ])
    });
    let columns = ["cache", "shared by the CPUs"].map(|name| Column::new(ColumnKind::Text, name));
    let caption = "Caches and the CPUs that share each";
    Element::Table(Table::new(
        TableStyle::Figures,
        caption,
        columns.into(),
        rows.collect(),
    ))
}

fn cores(machine: &Machine) -> Element {
    let mut cores: BTreeMap<String, &rampart_model::Cpu> = BTreeMap::new();
    for cpu in &machine.topology.cpus {
        cores.entry(cpu.siblings.to_string()).or_insert(cpu);
    }
    let mut cores: Vec<_> = cores.into_iter().collect();
    cores.sort_by_key(|(_, cpu)| cpu.id);
    let number =
        |value: Option<u32>| value.map_or_else(|| "–".to_owned(), |value| value.to_string());
    let rows = cores.into_iter().map(|(siblings, cpu)| {
        Row::new(vec![
            format!("{{{siblings}}}").into(),
            number(cpu.package).into(),
            number(cpu.node).into(),
            number(cpu.capacity).into(),
        ])
    });
    let mut columns = vec![Column::new(ColumnKind::Text, "CPUs of a core")];
    let figures = ["package", "node", "capacity"];
    columns.extend(figures.map(|name| Column::new(ColumnKind::Figure, name)));
    Element::Table(Table::new(
        TableStyle::Figures,
        "Cores",
        columns,
        rows.collect(),
    ))
}

fn nodes(machine: &Machine) -> Element {
    let items = machine.topology.nodes.iter().map(|node| ListItem {
        label: format!("node {}", node.id),
        text: format!("{}, {}", node.cpus.named(), format::bytes(node.memory)).into(),
        items: Vec::new(),
    });
    Element::List {
        items: items.collect(),
    }
}
