// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains as destinations of programs, and threads before and after their placement.

use rampart_model::{
    CpuSet, DomainKind, IsolationMechanism, PlacedThread, SchedulingPolicy, ThreadState,
};
use serde::Serialize;

use crate::element::{Column, ColumnKind, Element, Entry, ListItem, Row, Table, TableStyle};
use crate::plan_picture::item;

/// A domain that can run programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramDestination {
    /// Name of the domain, or `housekeeping`.
    pub name: String,
    /// Its kind; `None` for housekeeping.
    pub kind: Option<DomainKind>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Isolation of the CPUs; `None` for housekeeping.
    pub isolation: Option<IsolationMechanism>,
    /// Path of its control group; `None` if programs stay in their own.
    pub group: Option<String>,
    /// Scheduling policy of the plan; `None` if the plan sets none.
    #[serde(serialize_with = "policy_text")]
    pub policy: Option<SchedulingPolicy>,
}

fn policy_text<S: serde::Serializer>(
    policy: &Option<SchedulingPolicy>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    policy
        .map(|policy| policy.to_string())
        .serialize(serializer)
}

/// Returns the domains that can run programs.
#[must_use]
pub fn program_destinations(destinations: &[ProgramDestination]) -> Vec<Element> {
    let columns = [
        "domain",
        "kind",
        "CPUs",
        "isolation",
        "policy",
        "control group",
    ];
    let rows = destinations.iter().map(|destination| {
        let kind = destination.kind.map_or("–", DomainKind::word);
        let isolation = destination.isolation.map(|isolation| isolation.to_string());
        let policy = destination.policy.map(|policy| policy.to_string());
        Row::new(vec![
            Entry::from(&destination.name),
            kind.into(),
            destination.cpus.to_string().into(),
            isolation.unwrap_or_else(|| "–".to_owned()).into(),
            policy.unwrap_or_else(|| "unchanged".to_owned()).into(),
            Entry::from(destination.group.as_deref().unwrap_or("none")),
        ])
    });
    vec![Element::Table(Table::new(
        TableStyle::Figures,
        "Domains",
        columns
            .map(|name| Column::new(ColumnKind::Text, name))
            .into(),
        rows.collect(),
    ))]
}

/// Returns each thread with its settings before and after its placement.
#[must_use]
pub fn placed_threads(threads: &[PlacedThread]) -> Vec<Element> {
    vec![Element::List {
        items: threads.iter().map(placed).collect(),
    }]
}

fn placed(thread: &PlacedThread) -> ListItem {
    let word = if thread.refused.is_some() {
        "refused"
    } else {
        "moved"
    };
    let named = thread.is.as_ref().or(thread.was.as_ref());
    let name = named.map_or_else(String::new, |state| format!(" {}", state.name));
    let change = match (&thread.was, &thread.is) {
        (Some(was), Some(is)) => format!("{} -> {}", state(was), state(is)),
        (None, Some(is)) => format!("created meanwhile -> {}", state(is)),
        (Some(_), None) => "has ended".to_owned(),
        (None, None) => String::new(),
    };
    let refused = thread.refused.iter();
    ListItem {
        items: refused
            .map(|finding| item("", finding.to_string()))
            .collect(),
        ..item(format!("{word} {}{name}", thread.thread), change)
    }
}

fn state(state: &ThreadState) -> String {
    let nice = match state.nice {
        0 => String::new(),
        nice => format!(", nice {nice}"),
    };
    format!(
        "group {}, {}, {}{nice}",
        state.group.as_deref().unwrap_or("–"),
        state.cpus.named(),
        state.policy
    )
}
