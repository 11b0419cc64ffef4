// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of cells: static partitions under Rampart's hypervisor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::size::ByteSize;
use super::{is_default, time_text};
use crate::{CellPayload, Nanos};

/// Options of a cell besides CPUs, memory, image and devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellOptions {
    /// Kind of the image; by default `linux` if the cell has an `initramfs`, else `bare-metal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<CellPayload>,
    /// Arguments for the command line of its Linux.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Value of x0 at the start of a bare-metal program.
    #[serde(default, skip_serializing_if = "is_default")]
    pub argument: u64,
    /// Its share of the last-level cache in percent, rounded up to whole colours. Its memory has only pages of these
    /// colours, and no other cell gets them. By default its memory has all colours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_percent: Option<u32>,
    /// Its devices with DMA that no SMMU confines, and the reason why the cell is trusted with all memory. Without an
    /// entry such a device is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unconfined_dma: BTreeMap<String, String>,
    /// Regions that it shares with the root and with other cells. By default a bare-metal program has
    /// one of 64KiB that it writes; a Linux has them besides its console.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<CellRegion>,
    /// Regions of earlier cells of the plan that it reads: `CELL:NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Number of its doorbells: interrupts that others raise in it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bells: u32,
    /// Earlier cells of the plan whose doorbell it rings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<String>,
    /// Its networks, at most one with each peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<CellNetwork>,
    /// Time without a sign of life after which the cell has failed; by default no watchdog.
    #[serde(
        default,
        with = "time_text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<time_text::TimeText>")]
    pub watchdog: Option<Nanos>,
    /// Time within which the first program of its Linux has to write a console. Else the cell is stopped and has failed,
    /// with its kernel log in the domain's log. By default there is no limit.
    #[serde(
        default,
        with = "time_text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<time_text::TimeText>")]
    pub starts_within: Option<Nanos>,
}

/// A network between a cell and the root, or between two cells, both of which have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellNetwork {
    /// The other end: `root`, or a cell of the plan.
    pub peer: String,
    /// Size of the frames that each end can have on the way, a power of two from 4KiB to 16MiB. By default 256KiB.
    #[serde(
        default = "CellNetwork::default_size",
        skip_serializing_if = "CellNetwork::is_default_size"
    )]
    pub size: ByteSize,
}

impl CellNetwork {
    /// The name of the root as a peer.
    pub const ROOT: &'static str = "root";
    /// Minimum size.
    pub const LEAST: ByteSize = ByteSize(4 << 10);
    /// Maximum size.
    pub const MOST: ByteSize = ByteSize(16 << 20);

    /// Returns the size of a network that names none.
    #[must_use]
    pub const fn default_size() -> ByteSize {
        ByteSize(256 << 10)
    }

    fn is_default_size(size: &ByteSize) -> bool {
        *size == Self::default_size()
    }

    /// Returns whether a network can have this size.
    #[must_use]
    pub fn is_valid_size(size: ByteSize) -> bool {
        size.0.is_power_of_two() && (Self::LEAST.0..=Self::MOST.0).contains(&size.0)
    }
}

/// A region of memory that a cell shares with the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellRegion {
    /// Name by which the root and cells find it; required for a region of a Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its size, in whole pages of 4 KiB.
    pub size: ByteSize,
    /// The writer; the other side reads. By default the cell.
    #[serde(default, skip_serializing_if = "is_default")]
    pub writer: CellWriter,
}

/// The writer of a shared region.
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
