// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only a cell has: a static partition under Rampart's hypervisor.

use serde::{Deserialize, Serialize};

use super::size::ByteSize;
use super::{is_default, time_text};
use crate::{CellPayload, Nanos};

/// What a cell asks for besides CPUs, memory, image and devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellOptions {
    /// What its image is; without it `linux` where the cell has an `initramfs`, else `bare-metal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<CellPayload>,
    /// Words for the command line of its Linux.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// x0 of a program without an operating system when it starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub argument: u64,
    /// Regions that it shares with the root and with other cells. Without any a program without an
    /// operating system has one of 64KiB that it writes; a Linux has them besides its console.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<CellRegion>,
    /// Regions of cells further up in the plan that it reads: `CELL:NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// How many doorbells it has: interrupts by which others ring it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bells: u32,
    /// Cells further up in the plan whose doorbell it rings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<String>,
    /// It fails when it gives no sign of life for so long; without it there is no watchdog.
    #[serde(
        default,
        with = "time_text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<time_text::TimeText>")]
    pub watchdog: Option<Nanos>,
}

/// A region of memory that a cell shares with the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellRegion {
    /// What the root and cells find it by; a region of a Linux needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its size, in whole pages of 4 KiB.
    pub size: ByteSize,
    /// Who writes it; the other one reads. Without it the cell.
    #[serde(default, skip_serializing_if = "is_default")]
    pub writer: CellWriter,
}

/// Who writes a shared region.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CellWriter {
    /// The cell.
    #[default]
    Cell,
    /// The root.
    Root,
}
