// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of the machine, and the configurations of its root, its hostile cells and the witness.

use rampart_hypervisor_cells::remote::AREA_BYTES;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion, Platform};

/// QEMU, hw/arm/virt.c: `base_memmap`.
pub(crate) const DISTRIBUTOR: u64 = 0x0800_0000;
pub(crate) const REDISTRIBUTORS: u64 = 0x080a_0000;
/// GICC of a GICv2.
pub(crate) const INTERFACE: u64 = 0x0801_0000;
pub(crate) const PORT: u64 = 0x0900_0000;
pub(crate) const DEVICES_END: u64 = 0x0a00_4000;
pub(crate) const RAM: u64 = 0x4000_0000;
pub(crate) const RAM_BYTES: u64 = 1 << 30;
/// Load address of QEMU for a kernel that is not Linux.
pub(crate) const ROOT_PROGRAM: u64 = 0x4008_0000;
const AREAS: u64 = 0x5000_0000;
/// Memory of the root for configurations.
pub(crate) const BLOBS: u64 = 0x5100_0000;
pub(crate) const HYPERVISOR: u64 = 0x7000_0000;
pub(crate) const HYPERVISOR_BYTES: u64 = 8 << 20;
/// Guest addresses in all cells: loadable memory, the area of the first CPU in it, the page that `irq.rs` writes,
/// and memory that is not loaded.
pub(crate) const CODE_START: u64 = 0x4000_0000;
pub(crate) const CODE_BYTES: u64 = 2 << 20;
const AREA_OFFSET: u64 = 0x10_0000;
pub(crate) const SHARED: u64 = 0x5000_0000;
pub(crate) const PRIVATE: u64 = 0x6000_0000;
pub(crate) const PRIVATE_BYTES: u64 = 1 << 20;
pub(crate) const CPUS: usize = 4;
/// The witness's CPU, memory and number.
pub(crate) const WITNESS_CPU: usize = 3;
pub(crate) const WITNESS: u64 = 0x6000_0000;
const PERIOD_MICROSECONDS: u64 = 2000;

pub(crate) fn region(physical: u64, guest: u64, bytes: u64, flags: MemoryFlags) -> MemoryRegion {
    MemoryRegion {
        physical,
        guest,
        bytes,
        flags: flags.bits(),
        colours: 0,
    }
}

pub(crate) const DATA: MemoryFlags = MemoryFlags::READ.union(MemoryFlags::WRITE);
pub(crate) const LOADED: MemoryFlags = DATA
    .union(MemoryFlags::EXECUTE)
    .union(MemoryFlags::LOADABLE);

/// Returns the configuration of the root: all memory and devices.
pub(crate) fn system() -> Blob {
    let after = HYPERVISOR + HYPERVISOR_BYTES;
    let all = DATA | MemoryFlags::EXECUTE;
    Blob {
        name: "root".to_owned(),
        platform: Some(Platform {
            distributor: DISTRIBUTOR,
            cpu_frames: REDISTRIBUTORS,
            cpu_frame_bytes: CPUS as u64 * 0x2_0000,
            event_interrupt: 0,
            version: 3,
        }),
        cpus: (0..CPUS as u64).collect(),
        memory: vec![
            region(PORT, PORT, DEVICES_END - PORT, DATA | MemoryFlags::DEVICE),
            region(RAM, RAM, HYPERVISOR - RAM, all),
            region(after, after, RAM + RAM_BYTES - after, all),
        ],
        ..Blob::default()
    }
}

/// The platform of a machine with a GICv2.
pub(crate) fn gicv2() -> Platform {
    Platform {
        distributor: DISTRIBUTOR,
        cpu_frames: INTERFACE,
        cpu_frame_bytes: 0x2000,
        event_interrupt: 0,
        version: 2,
    }
}

/// A hostile cell with its memory: the program `remote.rs`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    pub(crate) cpus: &'static [u64],
    pub(crate) memory: u64,
}

pub(crate) const ONE: Cell = Cell {
    name: "one",
    cpus: &[2],
    memory: 0x6100_0000,
};
pub(crate) const OTHER: Cell = Cell {
    name: "other",
    cpus: &[1],
    memory: 0x6200_0000,
};
pub(crate) const PAIR: Cell = Cell {
    name: "pair",
    cpus: &[1, 2],
    memory: 0x6300_0000,
};

impl Cell {
    pub(crate) fn blob(&self) -> Blob {
        Blob {
            name: self.name.to_owned(),
            entry: CODE_START,
            argument: CODE_START + AREA_OFFSET,
            cpus: self.cpus.to_vec(),
            memory: vec![region(self.memory, CODE_START, CODE_BYTES, LOADED)],
            ..Blob::default()
        }
    }

    /// The CPU of the cell with this number, 0 for the first.
    pub(crate) fn cpu(&self, number: u64) -> Remote {
        let offset = AREA_OFFSET + number * AREA_BYTES;
        Remote {
            area: self.memory + offset,
            argument: CODE_START + offset,
        }
    }
}

/// A CPU that executes instructions of the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    /// Physical address of its area.
    pub(crate) area: u64,
    /// Address of its area for the program.
    pub(crate) argument: u64,
}

/// A CPU of the root.
pub(crate) const fn root(cpu: u64) -> Remote {
    let area = AREAS + cpu * AREA_BYTES;
    Remote {
        area,
        argument: area,
    }
}

pub(crate) fn page() -> u64 {
    WITNESS + CODE_BYTES
}

pub(crate) fn private() -> u64 {
    page() + 0x1000
}

/// Returns the configuration of the witness: the program `irq.rs`.
pub(crate) fn witness() -> Blob {
    let shared = DATA | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
    Blob {
        name: "witness".to_owned(),
        entry: CODE_START,
        argument: PERIOD_MICROSECONDS,
        cpus: vec![WITNESS_CPU as u64],
        memory: vec![
            region(WITNESS, CODE_START, CODE_BYTES, LOADED),
            region(page(), SHARED, 0x1000, shared),
            region(private(), PRIVATE, PRIVATE_BYTES, DATA),
        ],
        ..Blob::default()
    }
}
