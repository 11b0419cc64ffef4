// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the header that the driver fills in.

use core::ops::Range;

use crate::configuration::Configuration;
use crate::format::MAXIMUM_BLOB_BYTES;
use crate::interface::{
    Header, MAGIC, MAXIMUM_CPUS, MEMORY_ALIGNMENT, Outcome, PAGE_BYTES, REVISION, STATUS_BYTES,
};

/// Maximum timeout of the rendezvous of all CPUs.
const LONGEST_RENDEZVOUS_MICROSECONDS: u32 = 10_000_000;

/// Physical layout of the hypervisor's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// All of the hypervisor's memory.
    pub memory: Range<u64>,
    /// Memory of each CPU, consecutively.
    pub per_cpu: Range<u64>,
    /// The system's configuration.
    pub configuration: Range<u64>,
    /// The status pages.
    pub status: Range<u64>,
    /// Pages for translation tables.
    pub pool: Range<u64>,
}

impl Header {
    /// Returns the layout; `loaded_at` is the address at which the image runs.
    ///
    /// # Errors
    /// [`Outcome::WrongRevision`], or [`Outcome::Invalid`] if the offsets are inconsistent.
    pub fn layout(&self, loaded_at: u64) -> Result<Layout, Outcome> {
        if self.magic != MAGIC || self.header_bytes as usize != size_of::<Self>() {
            return Err(Outcome::Invalid);
        }
        if self.revision != REVISION {
            return Err(Outcome::WrongRevision);
        }
        self.checked_layout(loaded_at).ok_or(Outcome::Invalid)
    }

    fn checked_layout(&self, loaded_at: u64) -> Option<Layout> {
        let cpus = self.mpidrs.get(..self.cpu_count as usize)?;
        let aligned = |value: u64| value.is_multiple_of(PAGE_BYTES);
        let per_cpu_end = self
            .per_cpu_bytes
            .checked_mul(cpus.len() as u64)
            .and_then(|bytes| self.core_bytes.checked_add(bytes))?;
        let configuration_end = self.configuration.checked_add(self.configuration_bytes)?;
        let status_end = self.status.checked_add(STATUS_BYTES as u64)?;
        let end = self.physical_base.checked_add(self.memory_bytes)?;
        let valid = self.physical_base == loaded_at
            && self.physical_base.is_multiple_of(MEMORY_ALIGNMENT)
            && self.memory_bytes.is_multiple_of(MEMORY_ALIGNMENT)
            && aligned(self.core_bytes)
            && aligned(self.per_cpu_bytes)
            && self.image_bytes <= self.core_bytes
            && self.entry < self.image_bytes
            && per_cpu_end <= self.configuration
            && self.configuration.is_multiple_of(8)
            && self.configuration_bytes <= MAXIMUM_BLOB_BYTES as u64
            && configuration_end <= self.status
            && aligned(self.status)
            && status_end < self.memory_bytes
            && (1..=LONGEST_RENDEZVOUS_MICROSECONDS).contains(&self.rendezvous_microseconds)
            && !cpus.is_empty()
            && (1..cpus.len()).all(|index| !cpus[..index].contains(&cpus[index]));
        let at = |offsets: Range<u64>| {
            self.physical_base + offsets.start..self.physical_base + offsets.end
        };
        valid.then(|| Layout {
            memory: self.physical_base..end,
            per_cpu: at(self.core_bytes..per_cpu_end),
            configuration: at(self.configuration..configuration_end),
            status: at(self.status..status_end),
            pool: at(status_end..self.memory_bytes),
        })
    }

    /// Returns the affinities of the CPUs that enter.
    pub fn cpus(&self) -> &[u64] {
        &self.mpidrs[..(self.cpu_count as usize).min(MAXIMUM_CPUS)]
    }
}

/// Returns the watchdog timeout in ticks of a counter of this frequency (CNTFRQ_EL0, in hertz).
pub fn watchdog_ticks(configuration: &Configuration<'_>, frequency: u64) -> u64 {
    let milliseconds = u64::from(configuration.header.watchdog_milliseconds);
    milliseconds.saturating_mul(frequency) / 1000
}
