// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of counts, compared with other hypervisors and with the aims.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::simulated_machine::Counts;

/// One line of the table. Counts are instructions, except for exits.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// The counted operation.
    pub(crate) what: &'static str,
    /// The count at EL1 without a hypervisor, if the operation exists there.
    native: Option<u64>,
    /// In a cell: the minimum and the maximum of all repetitions.
    ours: u64,
    greatest: u64,
    /// Bao 738e3dc -O2 and Jailhouse d6e64f90 -Os, counted by the same method.
    bao: Option<u64>,
    jailhouse: Option<u64>,
    /// The largest count that meets the aim.
    aim: Option<u64>,
    pub(crate) reached: Option<bool>,
}

/// Name of the count, description, Bao, Jailhouse, aim.
type Known = (
    &'static str,
    &'static str,
    Option<u64>,
    Option<u64>,
    Option<u64>,
);

const CONTROLLER: Option<u64> = Some(150);

const ACCESSES: [Known; 27] = [
    (
        "mmio_trapped",
        "meter mmio: GICD_TYPER, mean of 64 reads",
        None,
        None,
        CONTROLLER,
    ),
    (
        "mmio_mapped",
        "meter mmio: a mapped register, mean of 64 reads",
        None,
        None,
        None,
    ),
    (
        "gicd_typer_read",
        "GICD_TYPER, read",
        Some(225),
        Some(285),
        CONTROLLER,
    ),
    (
        "gicd_irouter_read",
        "GICD_IROUTER, read",
        Some(273),
        Some(293),
        CONTROLLER,
    ),
    (
        "gicd_irouter_write",
        "GICD_IROUTER, write",
        None,
        None,
        CONTROLLER,
    ),
    (
        "gicd_isenabler_read",
        "GICD_ISENABLER1, read",
        Some(1290),
        Some(921),
        CONTROLLER,
    ),
    (
        "gicd_isenabler_write",
        "GICD_ISENABLER1, write",
        Some(3563),
        Some(920),
        CONTROLLER,
    ),
    (
        "gicd_ipriorityr_read",
        "GICD_IPRIORITYR8, read",
        None,
        None,
        CONTROLLER,
    ),
    (
        "gicd_ipriorityr_write",
        "GICD_IPRIORITYR8, write",
        None,
        None,
        CONTROLLER,
    ),
    (
        "gicr_typer_read",
        "GICR_TYPER, read",
        None,
        None,
        CONTROLLER,
    ),
    (
        "gicr_isenabler0_read",
        "GICR_ISENABLER0, read",
        Some(1314),
        Some(268),
        CONTROLLER,
    ),
    (
        "gicr_isenabler0_write",
        "GICR_ISENABLER0, write",
        Some(3589),
        Some(265),
        CONTROLLER,
    ),
    (
        "gicr_ipriorityr_read",
        "GICR_IPRIORITYR6, read",
        None,
        None,
        CONTROLLER,
    ),
    (
        "gicr_ipriorityr_write",
        "GICR_IPRIORITYR6, write",
        None,
        None,
        CONTROLLER,
    ),
    (
        "bits_read",
        "bits of a shared register, read",
        None,
        Some(575),
        Some(150),
    ),
    (
        "bits_write",
        "bits of a shared register, write",
        None,
        Some(572),
        Some(150),
    ),
    (
        "mapped_read",
        "a mapped register beside them, read",
        None,
        None,
        None,
    ),
    (
        "mapped_write",
        "a mapped register beside them, write",
        None,
        None,
        None,
    ),
    (
        "psci_version",
        "PSCI_VERSION by SMC",
        Some(202),
        Some(136),
        Some(100),
    ),
    ("hypercall", "a hypercall (Interface)", None, None, None),
    ("doorbell", "a doorbell by SMC (SCMI)", None, None, None),
    (
        "firmware_call",
        "a function of the firmware, forwarded",
        None,
        None,
        None,
    ),
    ("icc_sgi1r_write", "ICC_SGI1R_EL1, write", None, None, None),
    ("icc_pmr_read", "ICC_PMR_EL1, read", None, None, None),
    ("icc_pmr_write", "ICC_PMR_EL1, write", None, None, None),
    (
        "network_send",
        "network: a frame of 1514 bytes is sent",
        None,
        None,
        None,
    ),
    (
        "network_receive",
        "network: it is received",
        None,
        None,
        None,
    ),
];

/// Name, description, and the counts that Bao and Jailhouse add to the native count.
const INTERRUPTS: [(&str, &str, Option<u64>, Option<u64>); 2] = [
    (
        "timer",
        "timer interrupt to its handler",
        Some(199),
        Some(206),
    ),
    ("device", "device interrupt to its handler", None, None),
];

/// Builds the table from both runs.
///
/// # Errors
/// If a count is missing.
pub(crate) fn rows(native: &Counts, cell: &Counts) -> Result<Vec<Row>> {
    let find = |counts: &Counts, name: &str| {
        let count = counts.get(name).copied();
        count.with_context(|| format!("the count {name} is missing"))
    };
    let mut rows = Vec::new();
    for (name, what, added_bao, added_jailhouse) in INTERRUPTS {
        let ((native, _), (ours, greatest)) = (find(native, name)?, find(cell, name)?);
        rows.push(Row {
            what,
            native: Some(native),
            ours,
            greatest,
            bao: added_bao.map(|added| native + added),
            jailhouse: added_jailhouse.map(|added| native + added),
            aim: Some(native),
            reached: Some(greatest <= native),
        });
    }
    let (interrupts, _) = find(cell, "interrupts")?;
    for (name, what, peers) in [
        (
            "exits_timer",
            "exits for 100 timer interrupts",
            Some(interrupts),
        ),
        ("exits_device", "exits for 100 device interrupts", None),
        (
            "exits_network",
            "exits for 100 frames to an end that is awake",
            None,
        ),
    ] {
        let (ours, _) = find(cell, name)?;
        rows.push(Row {
            what,
            native: Some(0),
            ours,
            greatest: ours,
            bao: peers,
            jailhouse: peers,
            aim: Some(0),
            reached: Some(ours == 0),
        });
    }
    for (name, what, bao, jailhouse, aim) in ACCESSES {
        let (ours, greatest) = find(cell, name)?;
        rows.push(Row {
            what,
            native: None,
            ours,
            greatest,
            bao,
            jailhouse,
            aim,
            reached: aim.map(|aim| greatest <= aim),
        });
    }
    Ok(rows)
}

/// Renders the rows as a Markdown table.
pub(crate) fn text(rows: &[Row]) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), |it| it.to_string());
    let mut text = String::from(
        "| instructions | native | Rampart | greatest | Bao | Jailhouse | aim | reached |\n\
         |---|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for row in rows {
        let aim = row
            .aim
            .map_or_else(|| "–".to_owned(), |aim| format!("≤ {aim}"));
        let reached = match row.reached {
            None => "–",
            Some(true) => "yes",
            Some(false) => "no",
        };
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {aim} | {reached} |",
            row.what,
            number(row.native),
            row.ours,
            row.greatest,
            number(row.bao),
            number(row.jailhouse),
        );
    }
    text
}
