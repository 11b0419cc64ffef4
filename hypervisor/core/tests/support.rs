// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine with four CPUs like QEMU's `virt`, two cells, and replacements for the monitor: table memory that
//! checks break-before-make, and registers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rampart_hypervisor_core::bus::{Bus, Width};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::configuration::machine_checks::Machine;
use rampart_hypervisor_core::configuration::{Configuration, Kind};
use rampart_hypervisor_core::format::{
    Doorbell, InterruptFlags, InterruptGrant, MemoryFlags, MemoryRegion, Platform, RegisterGrant,
    SmcGrant,
};
use rampart_hypervisor_core::interface::{PAGE_BYTES, Status};
use rampart_hypervisor_core::stage2::{ENTRIES, PagePool, TableMemory};
use zerocopy::{FromZeros, IntoBytes};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const HYPERVISOR: std::ops::Range<u64> = 0x7000_0000..0x7080_0000;
pub(crate) const DISTRIBUTOR: u64 = 0x0800_0000;
pub(crate) const REDISTRIBUTORS: u64 = 0x080a_0000;
/// Address of a page with shared registers.
pub(crate) const CLOCKS: u64 = 0x0903_0000;
pub(crate) const MPIDRS: [u64; 4] = [0, 1, 2, 0x100];

pub(crate) const MACHINE: Machine<'static> =
    Machine { hypervisor: HYPERVISOR, mpidrs: &MPIDRS, interrupt_end: 288, address_bits: 40 };

pub(crate) fn region(physical: u64, guest: u64, bytes: u64, flags: MemoryFlags) -> MemoryRegion {
    MemoryRegion { physical, guest, bytes, flags: flags.bits(), colours: 0 }
}

pub(crate) fn ram() -> MemoryFlags {
    MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE
}

pub(crate) fn device() -> MemoryFlags {
    MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE
}

pub(crate) fn system() -> Blob {
    let own = |physical, bytes, flags| region(physical, physical, bytes, flags);
    Blob {
        name: "virt".into(),
        platform: Some(Platform {
            distributor: DISTRIBUTOR,
            cpu_frames: REDISTRIBUTORS,
            cpu_frame_bytes: 4 * 0x2_0000,
            event_interrupt: 60,
            version: 3,
        }),
        cpus: MPIDRS.to_vec(),
        memory: vec![
            own(0x0900_0000, 0x10_0000, device()),
            own(0x4000_0000, HYPERVISOR.start - 0x4000_0000, ram()),
            own(HYPERVISOR.end, 0x8000_0000 - HYPERVISOR.end, ram()),
        ],
        interrupts: vec![InterruptGrant { number: 61, flags: InterruptFlags::DOORBELL.bits() }],
        ..Blob::default()
    }
}

pub(crate) fn cell(name: &str, cpus: &[u64], at: u64) -> Blob {
    Blob {
        name: name.into(),
        entry: 0x1000,
        cpus: cpus.to_vec(),
        memory: vec![
            region(at, 0, 4 * MIB + 0x3000, ram() | MemoryFlags::LOADABLE),
            region(at + 0x80_0000, 0x80_0000, MIB, MemoryFlags::READ | MemoryFlags::WRITE),
            region(
                0x6000_0000,
                0x6000_0000,
                0x1_0000,
                MemoryFlags::READ | MemoryFlags::SHARED | MemoryFlags::ROOT_READ,
            ),
        ],
        ..Blob::default()
    }
}

/// A cell with a device, shared memory, interrupts, register bits, an SMC range and a doorbell.
pub(crate) fn press() -> Blob {
    let mut blob = cell("press", &[1, 2], 0x5000_0000);
    blob.memory[2].flags |= MemoryFlags::WRITE.bits();
    blob.memory.push(region(0x0901_0000, 0x0901_0000, 0x1000, device()));
    blob.interrupts = vec![
        InterruptGrant { number: 40, flags: 0 },
        InterruptGrant { number: 71, flags: InterruptFlags::DOORBELL.bits() },
    ];
    blob.registers = vec![bits(0, 0xff, 0x0f), bits(4, 0, 0xffff_0000), bits(0x10, 1, 0)];
    blob.smcs = vec![SmcGrant { first: 0xc200_0010, last: 0xc200_0012 }];
    blob.doorbells = vec![Doorbell { interrupt: 61, reserved: 0 }];
    blob.watchdog_milliseconds = 50;
    blob
}

pub(crate) fn bits(offset: u64, readable: u64, writable: u64) -> RegisterGrant {
    RegisterGrant { address: CLOCKS + offset, readable, writable, width: 4, flags: 0 }
}

/// Bytes aligned for the entries of a blob.
#[derive(Debug, Clone)]
pub(crate) struct Aligned(Vec<u64>, usize);

impl Aligned {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Self(words, bytes.len())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.as_bytes()[..self.1]
    }
}

/// Parses a valid configuration, which is never freed.
pub(crate) fn read(blob: &Blob) -> Configuration<'static> {
    let kind = if blob.platform.is_some() { Kind::System } else { Kind::Cell };
    let bytes = Box::leak(Box::new(Aligned::new(&blob.bytes())));
    Configuration::read(bytes.bytes(), kind).expect("a valid configuration")
}

/// Table memory that checks break-before-make: replacing a valid entry by another valid one, or freeing a table,
/// without a TLB invalidation in between is an error.
pub(crate) struct Tables {
    pool: PagePool<64>,
    entries: BTreeMap<u64, Vec<u64>>,
    /// Entries written as invalid, before the TLB invalidation: (table, index).
    not_invalidated: std::collections::BTreeSet<(u64, usize)>,
    pub(crate) invalidations: usize,
}

pub(crate) const POOL: u64 = 0x7040_0000;

/// Returns the number of free pages, by allocating them.
pub(crate) fn left<const WORDS: usize>(pool: &PagePool<WORDS>) -> usize {
    let mut pool = pool.clone();
    std::iter::from_fn(|| pool.allocate(1)).count()
}

impl Tables {
    pub(crate) fn new(pages: usize) -> Self {
        Self {
            pool: PagePool::new(POOL, pages),
            entries: BTreeMap::new(),
            not_invalidated: Default::default(),
            invalidations: 0,
        }
    }

    pub(crate) fn left(&self) -> usize {
        left(&self.pool)
    }
}

impl TableMemory for Tables {
    fn allocate(&mut self, pages: usize) -> Option<u64> {
        let table = self.pool.allocate(pages)?;
        self.entries.insert(table, vec![0; pages * ENTRIES]);
        Some(table)
    }

    fn free(&mut self, table: u64, pages: usize) {
        assert!(self.not_invalidated.is_empty(), "a freed table may still be in a TLB");
        assert!(self.entries.remove(&table).is_some(), "a table is freed twice");
        self.pool.free(table, pages);
    }

    fn read(&self, table: u64, index: usize) -> u64 {
        self.entries[&table][index]
    }

    fn write(&mut self, table: u64, index: usize, entry: u64) {
        let old =
            std::mem::replace(&mut self.entries.get_mut(&table).expect("a table")[index], entry);
        if old & 1 != 0 && entry & 1 != 0 && old != entry {
            panic!("{old:#x} becomes {entry:#x} without an invalid entry in between");
        }
        if old & 1 != 0 && entry & 1 == 0 {
            self.not_invalidated.insert((table, index));
        }
        if entry & 1 != 0 && old & 1 == 0 {
            assert!(
                !self.not_invalidated.contains(&(table, index)),
                "an entry becomes valid before the TLBs are invalidated"
            );
        }
    }

    fn invalidate_tlbs(&mut self) {
        self.not_invalidated.clear();
        self.invalidations += 1;
    }
}

/// Simulated registers that record each access.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    bytes: Mutex<BTreeMap<u64, u8>>,
    pub(crate) accesses: Mutex<Vec<(u64, Width, Option<u64>)>>,
}

impl Registers {
    pub(crate) fn set(&self, address: u64, width: Width, value: u64) {
        let mut bytes = self.bytes.lock().expect("not poisoned");
        for (index, byte) in value.to_le_bytes()[..width.bytes() as usize].iter().enumerate() {
            bytes.insert(address + index as u64, *byte);
        }
    }

    pub(crate) fn get(&self, address: u64, width: Width) -> u64 {
        let bytes = self.bytes.lock().expect("not poisoned");
        (0..u64::from(width.bytes())).rev().fold(0, |value, index| {
            value << 8 | u64::from(bytes.get(&(address + index)).copied().unwrap_or(0))
        })
    }

    /// Returns the accesses since the last call.
    pub(crate) fn taken(&self) -> Vec<(u64, Width, Option<u64>)> {
        std::mem::take(&mut self.accesses.lock().expect("not poisoned"))
    }
}

impl Bus for Registers {
    fn read(&self, address: u64, width: Width) -> u64 {
        assert!(address.is_multiple_of(width.bytes().into()), "{address:#x} is unaligned");
        self.accesses.lock().expect("not poisoned").push((address, width, None));
        self.get(address, width)
    }

    fn write(&self, address: u64, width: Width, value: u64) {
        assert!(address.is_multiple_of(width.bytes().into()), "{address:#x} is unaligned");
        self.accesses.lock().expect("not poisoned").push((
            address,
            width,
            Some(value & width.mask()),
        ));
        self.set(address, width, value);
    }

    fn holder(&self) -> u32 {
        1
    }
}

const _: () = assert!(PAGE_BYTES == 4096);

/// Returns zeroed status pages, as at the launch.
pub(crate) fn zeroed_status() -> Box<Status> {
    Box::new(Status::new_zeroed())
}
