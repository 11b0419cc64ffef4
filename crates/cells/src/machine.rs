// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine is made of, from its device tree as Linux shows it: memory, the interrupt
//! controller, CPUs. Everything beside memory and the controller is taken for devices of the root.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion, Platform, SmcGrant};
use rampart_hypervisor_core::gic::REDISTRIBUTOR_BYTES;
use rampart_hypervisor_core::interface::{MAXIMUM_CPUS, PAGE_BYTES};

/// Two frames for each CPU, four where there are virtual LPIs (Arm IHI 0069, 12.1).
const MOST_REDISTRIBUTOR_BYTES: u64 = 2 * REDISTRIBUTOR_BYTES * MAXIMUM_CPUS as u64;

/// Why the machine is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the device tree.
    #[error("{path}: {source}; the machine must be described by a device tree")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A node that should be there.
    #[error("{0}: there is no such node in the device tree")]
    Missing(&'static str),
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Start and size of each memory, in bytes, ascending.
    pub memory: Vec<(u64, u64)>,
    /// GICD, and start and size of GICR.
    pub distributor: (u64, u64),
    /// See there.
    pub redistributors: (u64, u64),
    /// Affinities of the CPUs, ascending as Linux counts them.
    pub cpus: Vec<u64>,
    /// Physical addresses have so many bits; devices end there.
    pub address_bits: u32,
}

/// Words of a property, which are big-endian (Devicetree Specification, 2.2.4).
fn words(path: &Path) -> Result<Vec<u64>, Error> {
    let bytes = fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let word = |word: &[u8]| {
        word.iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    Ok(bytes.chunks_exact(4).map(word).collect())
}

/// Pairs of address and size, of two words each: that is what 64-bit machines have at their root.
fn pairs(path: &Path) -> Result<Vec<(u64, u64)>, Error> {
    let words = words(path)?;
    let pair = |four: &[u64]| (four[0] << 32 | four[1], four[2] << 32 | four[3]);
    Ok(words.chunks_exact(4).map(pair).collect())
}

fn children(tree: &Path, prefix: &str) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read {
        path: tree.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(tree).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(prefix)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Machine {
    /// Reads `/proc/device-tree`, or a tree like it.
    ///
    /// # Errors
    /// If it is not there or lacks something.
    pub fn read(tree: &Path, address_bits: u32) -> Result<Self, Error> {
        let mut memory = Vec::new();
        for node in children(tree, "memory@")? {
            memory.extend(pairs(&node.join("reg"))?);
        }
        memory.sort_unstable();
        let controller = children(tree, "intc@")?
            .into_iter()
            .chain(children(tree, "interrupt-controller@")?)
            .next()
            .ok_or(Error::Missing("interrupt-controller"))?;
        let frames = pairs(&controller.join("reg"))?;
        let [distributor, redistributors, ..] = frames[..] else {
            return Err(Error::Missing("reg of the interrupt controller"));
        };
        let mut cpus = Vec::new();
        for node in children(&tree.join("cpus"), "cpu@")? {
            let affinity = words(&node.join("reg"))?;
            cpus.push(
                affinity
                    .into_iter()
                    .fold(0, |value, word| value << 32 | word),
            );
        }
        cpus.sort_unstable();
        Ok(Self {
            memory,
            distributor,
            redistributors,
            cpus,
            address_bits,
        })
    }

    /// The system's configuration, in which the root has everything but the hypervisor's memory.
    #[must_use]
    pub fn system(&self, hypervisor: (u64, u64)) -> Blob {
        let end = 1 << self.address_bits;
        let mut regions = Vec::new();
        let mut device_from = 0;
        let mut taken: Vec<(u64, u64, bool)> = vec![
            (self.distributor.0, self.distributor.1, false),
            (self.redistributors.0, self.redistributors.1, false),
        ];
        for &(start, bytes) in &self.memory {
            taken.push((start, bytes, true));
        }
        taken.sort_unstable();
        let device = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE;
        let all = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE;
        let mut add = |start: u64, end: u64, flags: MemoryFlags| {
            if start < end {
                regions.push(MemoryRegion {
                    physical: start,
                    guest: start,
                    bytes: end - start,
                    flags: flags.bits(),
                    reserved: 0,
                });
            }
        };
        for (start, bytes, is_memory) in taken {
            add(device_from, start, device);
            let after = (start + bytes).next_multiple_of(PAGE_BYTES);
            if is_memory {
                add(start, after.min(hypervisor.0), all);
                add((hypervisor.0 + hypervisor.1).max(start), after, all);
            }
            device_from = after;
        }
        add(device_from, end, device);
        Blob {
            name: "root".to_owned(),
            platform: Some(Platform {
                distributor: self.distributor.0,
                redistributors: self.redistributors.0,
                // Room for more CPUs than there can be is nobody's.
                redistributor_bytes: self.redistributors.1.min(MOST_REDISTRIBUTOR_BYTES),
                serial_port: 0,
                event_interrupt: 0,
                reserved: 0,
            }),
            cpus: self.cpus.clone(),
            memory: regions,
            // Calls of the architecture: workarounds for processors' mistakes (Arm DEN 0028, 7).
            smcs: vec![SmcGrant {
                first: 0x8000_0001,
                last: 0x8000_ffff,
            }],
            ..Blob::default()
        }
    }
}
