// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For programs of the root and tests, with the standard library: writes configurations, reads their
//! names, and computes the layout of the hypervisor's memory.

use core::mem::offset_of;
use std::vec::Vec;

use zerocopy::{FromZeros, IntoBytes};

use super::{Configuration, Kind, Refused};
use crate::format::{
    BlobHeader, CELL_MAGIC, Doorbell, InterruptGrant, Iommu, MemoryRegion, NAME_BYTES, Platform,
    RegisterGrant, SYSTEM_MAGIC, SmcGrant, StreamGrant,
};
use crate::interface::{Header, PAGE_BYTES, REVISION};

/// Appends text of the root's programs to a blob. The hypervisor keeps it with the configuration.
pub fn append_text(blob: &mut Vec<u8>, text: &[u8]) {
    blob.extend_from_slice(text);
    let bytes = blob.len() as u32;
    let at = offset_of!(BlobHeader, bytes);
    if let Some(field) = blob.get_mut(at..at + size_of_val(&bytes)) {
        field.copy_from_slice(&bytes.to_le_bytes());
    }
}

/// A configuration to write.
#[derive(Debug, Clone, Default)]
pub struct Blob {
    /// Name, truncated to [`NAME_BYTES`].
    pub name: std::string::String,
    /// Guest address at which the first CPU starts.
    pub entry: u64,
    /// x0 of the first CPU.
    pub argument: u64,
    /// Timeout of the watchdog; 0 for none.
    pub watchdog_milliseconds: u32,
    /// Only for the system's configuration.
    pub platform: Option<Platform>,
    /// Affinities of the CPUs.
    pub cpus: Vec<u64>,
    /// Memory and devices.
    pub memory: Vec<MemoryRegion>,
    /// Shared peripheral interrupts.
    pub interrupts: Vec<InterruptGrant>,
    /// Bits of shared registers.
    pub registers: Vec<RegisterGrant>,
    /// Forwarded SMC functions.
    pub smcs: Vec<SmcGrant>,
    /// Doorbells of other cells.
    pub doorbells: Vec<Doorbell>,
    /// Only for the system's configuration, if it has streams.
    pub iommu: Option<Iommu>,
    /// Streams of the SMMU.
    pub streams: Vec<StreamGrant>,
}

impl Blob {
    /// Returns the bytes of the blob, unchecked.
    pub fn bytes(&self) -> Vec<u8> {
        let mut header = BlobHeader::new_zeroed();
        header.magic = if self.platform.is_some() { SYSTEM_MAGIC } else { CELL_MAGIC };
        header.revision = REVISION;
        let kept = self.name.len().min(NAME_BYTES);
        header.name[..kept].copy_from_slice(&self.name.as_bytes()[..kept]);
        header.entry = self.entry;
        header.argument = self.argument;
        header.watchdog_milliseconds = self.watchdog_milliseconds;
        header.cpu_count = self.cpus.len() as u32;
        header.memory_count = self.memory.len() as u32;
        header.interrupt_count = self.interrupts.len() as u32;
        header.register_count = self.registers.len() as u32;
        header.smc_count = self.smcs.len() as u32;
        header.doorbell_count = self.doorbells.len() as u32;
        header.stream_count = self.streams.len() as u32;
        let mut tables = Vec::new();
        tables
            .extend_from_slice(self.platform.as_ref().map_or(&[], |platform| platform.as_bytes()));
        tables.extend_from_slice(self.cpus.as_bytes());
        tables.extend_from_slice(self.memory.as_bytes());
        tables.extend_from_slice(self.interrupts.as_bytes());
        tables.extend_from_slice(self.registers.as_bytes());
        tables.extend_from_slice(self.smcs.as_bytes());
        tables.extend_from_slice(self.doorbells.as_bytes());
        tables.extend_from_slice(self.iommu.as_ref().map_or(&[], |iommu| iommu.as_bytes()));
        tables.extend_from_slice(self.streams.as_bytes());
        header.bytes = (size_of::<BlobHeader>() + tables.len()) as u32;
        let mut bytes = header.as_bytes().to_vec();
        bytes.append(&mut tables);
        bytes
    }

    /// Returns the bytes of the blob after the checks that need no knowledge of the machine.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn checked(&self) -> Result<Vec<u8>, Refused> {
        let bytes = self.bytes();
        let kind = if self.platform.is_some() { Kind::System } else { Kind::Cell };
        // Copied to u64 words, because entries must be aligned.
        let mut words = std::vec![0_u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
        Configuration::read(&words.as_bytes()[..bytes.len()], kind)?;
        Ok(bytes)
    }
}

impl<'a> Configuration<'a> {
    /// Returns the size of header and tables: the text of the root's programs follows.
    pub fn bytes_before_text(&self) -> usize {
        let before = size_of::<BlobHeader>()
            + self.platform.map_or(0, size_of_val)
            + size_of_val(self.cpus)
            + size_of_val(self.memory)
            + size_of_val(self.interrupts)
            + size_of_val(self.registers)
            + size_of_val(self.smcs)
            + size_of_val(self.doorbells);
        #[cfg(feature = "smmu")]
        let before = before + self.iommu.map_or(0, size_of_val) + size_of_val(self.streams);
        before
    }

    /// Returns the name without its padding.
    pub fn name(&self) -> &'a str {
        let end = self.header.name.iter().position(|byte| *byte == 0);
        let name = &self.header.name[..end.unwrap_or(self.header.name.len())];
        // Only ASCII passes the check.
        core::str::from_utf8(name).unwrap_or_default()
    }
}

impl Header {
    /// Computes the offsets of configuration and status pages. `configuration_bytes` and `cpu_count`
    /// must be set.
    pub fn arrange(&mut self) {
        let after = self.core_bytes + self.per_cpu_bytes * u64::from(self.cpu_count);
        self.configuration = after;
        self.status = (after + self.configuration_bytes).next_multiple_of(PAGE_BYTES);
    }
}
