// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DMA confined by an SMMUv3, with QEMU's `edu` as a hostile device (docs/specs/edu.rst of QEMU): one of the root, one of
//! a cell, both driven by instructions of the test.

use std::sync::atomic::Ordering::Relaxed;

use rampart_hypervisor_cells::remote::BEGUN;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{Iommu, MemoryFlags, Refusal, StreamGrant};
use rampart_hypervisor_core::interface::{CellState, DMA_FAULT_SLOTS, Hypercall, Outcome, ROOT};

use crate::machine::{
    Attacked, CODE_START, Cell, DATA, DEVICES_END, DISTRIBUTOR, HYPERVISOR, LOAD, Machine, ONE,
    PORT, RAM, RAM_BYTES, Remote, SMMU, WITNESS, WITNESS_CPU, ensure, name, on_with_options,
    private, region, root, system,
};

/// QEMU, hw/arm/virt.c: `base_memmap` and `extended_memmap`.
const REGISTERS: u64 = 0x0905_0000;
const REGISTER_BYTES: u64 = 0x2_0000;
const WINDOW: u64 = 0x1000_0000;
const WINDOW_BYTES: u64 = 0x0200_0000;
const SPACE: u64 = 0x40_1000_0000;
const SPACE_BYTES: u64 = 1 << 20;
/// Memory of the root for what is sent and received.
const SENT: u64 = 0x5200_0000;
const RECEIVED: u64 = 0x5200_1000;
/// The same of the cell: physical, and for the cell and its device.
const OFFSET: u64 = 0x18_0000;
const BYTES: u64 = 64;
/// F_TRANSLATION, F_PERMISSION and C_BAD_STE (Arm IHI 0070, 7.3).
const NOT_MAPPED: u32 = 0x10;
const NO_PERMISSION: u32 = 0x13;
const NO_OWNER: u32 = 0x04;

/// A device `edu`, by its slot on the first bus.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edu {
    slot: u64,
}

pub(crate) const OF_ROOT: Edu = Edu { slot: 2 };
pub(crate) const OF_CELL: Edu = Edu { slot: 3 };

impl Edu {
    /// The page in the configuration space.
    fn page(self) -> u64 {
        SPACE + (self.slot << 15)
    }

    fn stream(self) -> u32 {
        (self.slot << 3) as u32
    }

    fn registers(self) -> u64 {
        WINDOW + (self.slot << 20)
    }

    fn grant(self) -> StreamGrant {
        StreamGrant {
            first: self.stream(),
            count: 1,
            function: self.page(),
        }
    }

    /// Sets the address, and permits memory accesses and DMA.
    pub(crate) fn set_up(self, machine: &Machine, by: Remote) -> Attacked {
        machine.set_device(by, self.page() + 0x10, self.registers())?;
        machine.set_device(by, self.page() + 4, 6)
    }

    /// Copies between memory and the device's buffer. Waits for the end of it.
    pub(crate) fn copy(
        self,
        machine: &Machine,
        by: Remote,
        address: u64,
        to_memory: bool,
    ) -> Attacked {
        self.begin(machine, by, address, to_memory)?;
        self.finish(machine, by)
    }

    fn begin(self, machine: &Machine, by: Remote, address: u64, to_memory: bool) -> Attacked {
        let (register, command) = self.order(machine, by, address, to_memory)?;
        Self::write(machine, by, register, command)
    }

    /// Sets everything of an order except the command that begins it: returns its register and the command.
    pub(crate) fn order(
        self,
        machine: &Machine,
        by: Remote,
        address: u64,
        to_memory: bool,
    ) -> Result<(u64, u64), String> {
        const BUFFER: u64 = 0x4_0000;
        let (from, to) = match to_memory {
            true => (BUFFER, address),
            false => (address, BUFFER),
        };
        for (register, value) in [(0x80, from), (0x88, to), (0x90, BYTES)] {
            Self::write(machine, by, self.registers() + register, value)?;
        }
        Ok((self.registers() + 0x98, 1 | u64::from(to_memory) << 1))
    }

    fn write(machine: &Machine, by: Remote, register: u64, value: u64) -> Attacked {
        let written = machine.access(by, crate::machine::STORE, register, value)?;
        ensure(written.is_some(), || "no access to the device".to_owned())
    }

    /// The command register of the function (PCI Express, 7.5.1.1.3): bit 2 permits DMA.
    pub(crate) fn command(self, machine: &Machine, by: Remote) -> Result<u64, String> {
        machine.device(by, self.page() + 4)
    }

    pub(crate) fn finish(self, machine: &Machine, by: Remote) -> Attacked {
        let runs = || {
            machine
                .device(by, self.registers() + 0x98)
                .is_ok_and(|it| it & 1 != 0)
        };
        ensure(machine.wait(|| !runs()), || {
            "the DMA does not end".to_owned()
        })
    }
}

/// Writes different words to each place and returns the first.
pub(crate) fn fill(machine: &Machine, address: u64, value: u8) {
    machine.write(address, &[value; BYTES as usize]);
}

pub(crate) fn holds(machine: &Machine, address: u64, value: u8) -> bool {
    machine.bytes(address, BYTES) == [value; BYTES as usize]
}

/// The events since the last call: (cell, stream, event, address).
fn events(machine: &Machine, seen: &mut u64) -> Result<Vec<(u32, u32, u32, u64)>, String> {
    // Each call copies some of them.
    let mut all = u64::MAX;
    let mut status = machine.status();
    while all != status.dma_faults.load(Relaxed) {
        all = status.dma_faults.load(Relaxed);
        machine.call(root(0), Hypercall::Interface, 0, 0)?;
        status = machine.status();
    }
    let from = (*seen).max(all.saturating_sub(DMA_FAULT_SLOTS as u64));
    *seen = all;
    let read = |number: u64| {
        let slot = &status.dma_fault[(number % DMA_FAULT_SLOTS as u64) as usize];
        let [cell, stream, event] =
            [&slot.cell, &slot.stream, &slot.event].map(|word| word.load(Relaxed));
        (cell, stream, event, slot.address.load(Relaxed))
    };
    Ok((from..all).map(read).collect())
}

pub(crate) fn with_smmu() -> Blob {
    let mut system = system();
    let device = DATA | MemoryFlags::DEVICE;
    let after = REGISTERS + REGISTER_BYTES;
    system.memory[0] = region(PORT, PORT, REGISTERS - PORT, device);
    system
        .memory
        .insert(1, region(after, after, DEVICES_END - after, device));
    system
        .memory
        .push(region(WINDOW, WINDOW, WINDOW_BYTES, device));
    system
        .memory
        .push(region(SPACE, SPACE, SPACE_BYTES, device));
    system.iommu = Some(Iommu {
        registers: REGISTERS,
        configuration_space: SPACE,
        configuration_space_bytes: SPACE_BYTES,
    });
    system.streams = vec![StreamGrant {
        first: 0,
        count: 0x1_0000,
        function: 0,
    }];
    system
}

/// The hostile cell with a device.
pub(crate) fn cell_with(edu: Edu) -> Blob {
    let mut blob = ONE.blob();
    let flags = DATA | MemoryFlags::DEVICE;
    blob.memory
        .push(region(edu.registers(), edu.registers(), 1 << 20, flags));
    blob.streams = vec![edu.grant()];
    blob
}

/// The options of QEMU for both devices.
pub(crate) fn edu_options() -> Vec<std::ffi::OsString> {
    let device = |edu: Edu| format!("edu,addr={},dma_mask=0xffffffffffffffff", edu.slot);
    let options = [OF_ROOT, OF_CELL].map(|edu| ["-device".into(), device(edu).into()]);
    options.into_iter().flatten().collect()
}

/// One boot for all attacks.
#[test]
fn dma_is_confined_to_its_owner() {
    on_with_options(&SMMU, &with_smmu(), &edu_options(), |machine| {
        machine.expect_launched()?;
        for edu in [OF_ROOT, OF_CELL] {
            edu.set_up(machine, root(0))?;
        }
        streams_and_functions_of_others_are_refused(machine)?;
        a_device_reaches_only_its_owner(machine)?;
        a_function_of_a_cell_is_not_configured_by_the_root(machine)?;
        the_dma_of_a_cell_ends_with_it(machine)
    });
}

/// Tries to write and to read all these addresses by DMA; each is physical, with what the device uses.
fn attack_all(
    machine: &Machine,
    (edu, by): (Edu, Remote),
    (sent, received): ((u64, u64), (u64, u64)),
    targets: &[(u64, u64)],
) -> Attacked {
    for &(physical, address) in targets {
        let is_memory = (RAM..RAM + RAM_BYTES).contains(&physical);
        let before = is_memory.then(|| machine.bytes(physical, BYTES));
        fill(machine, sent.0, 0xa5);
        edu.copy(machine, by, sent.1, false)?;
        edu.copy(machine, by, address, true)?;
        let after = is_memory.then(|| machine.bytes(physical, BYTES));
        ensure(before == after, || format!("DMA writes {address:#x}"))?;
        // A device that reads nothing keeps its buffer, or gets zeros.
        edu.copy(machine, by, address, false)?;
        fill(machine, received.0, 0);
        edu.copy(machine, by, received.1, true)?;
        let nothing = holds(machine, received.0, 0xa5) || holds(machine, received.0, 0);
        ensure(nothing, || {
            format!(
                "DMA reads {address:#x}: {:x?}",
                machine.bytes(received.0, 8)
            )
        })?;
    }
    Ok(())
}

/// What no device reaches, by physical addresses: the hypervisor, its tables of streams, the witness, and registers.
fn of_others() -> Vec<u64> {
    vec![
        HYPERVISOR,
        HYPERVISOR + 0x40_0000,
        HYPERVISOR + 0x7f_f000,
        WITNESS,
        private(),
        DISTRIBUTOR,
        REGISTERS,
        0x2_0000_0000,
    ]
}

fn a_device_reaches_only_its_owner(machine: &Machine) -> Attacked {
    let mut seen = 0;
    let witness = machine.start_witness()?;
    // The root's own memory.
    let own = ((SENT, SENT), (RECEIVED, RECEIVED));
    let targets: Vec<_> = of_others().into_iter().map(|it| (it, it)).collect();
    attack_all(machine, (OF_ROOT, root(0)), own, &targets)?;
    let found = events(machine, &mut seen)?;
    let is_it = |&(cell, stream, event, address): &(u32, u32, u32, u64)| {
        let known = targets
            .iter()
            .any(|(_, it)| address & !0xfff == it & !0xfff);
        (cell, stream) == (ROOT, OF_ROOT.stream())
            && [NOT_MAPPED, NO_PERMISSION].contains(&event)
            && known
    };
    ensure(
        found.len() == DMA_FAULT_SLOTS && found.iter().all(is_it),
        || format!("events of the root's device: {found:x?}"),
    )?;
    witness.check()?;

    let blob = cell_with(OF_CELL);
    let number = machine.start_hostile(&ONE, &blob)?;
    let cell = ONE.cpu(0);
    let guest = |offset: u64| (ONE.memory + offset, CODE_START + offset);
    let own = (guest(OFFSET), guest(OFFSET + 0x1000));
    attack_all(machine, (OF_CELL, cell), own, &targets)?;
    let found = events(machine, &mut seen)?;
    let is_it = |&(cell, stream, event, _): &(u32, u32, u32, u64)| {
        (u64::from(cell), stream, event) == (number, OF_CELL.stream(), NOT_MAPPED)
    };
    ensure(
        found.len() == DMA_FAULT_SLOTS && found.iter().all(is_it),
        || format!("events of the cell's device: {found:x?}"),
    )?;
    // The root's device does not reach the cell.
    let own = ((SENT, SENT), (RECEIVED, RECEIVED));
    let target = ONE.memory + OFFSET;
    attack_all(machine, (OF_ROOT, root(0)), own, &[(target, target)])?;
    witness.check()?;
    machine.manage(Hypercall::CellDestroy, number)?;
    machine.manage(Hypercall::CellDestroy, witness.number)?;
    machine.turn_on(ONE.cpus[0])?;
    machine.turn_on(WITNESS_CPU as u64)?;
    machine.expect_no_fault()
}

fn the_dma_of_a_cell_ends_with_it(machine: &Machine) -> Attacked {
    let mut seen = 0;
    let cell = ONE.cpu(0);
    // A cell that never ran gives its device back.
    machine.turn_off(ONE.cpus[0])?;
    let number = machine.create(&cell_with(OF_ROOT))?;
    machine.manage(Hypercall::CellDestroy, number)?;
    fill(machine, SENT, 0x22);
    fill(machine, RECEIVED, 0);
    OF_ROOT.set_up(machine, root(0))?;
    OF_ROOT.copy(machine, root(0), SENT, false)?;
    OF_ROOT.copy(machine, root(0), RECEIVED, true)?;
    ensure(holds(machine, RECEIVED, 0x22), || {
        "the device does not return to the root".to_owned()
    })?;
    events(machine, &mut seen)?;

    let blob = cell_with(OF_CELL);
    let number = machine.start_parked(&blob, "rampart-cell-remote")?;
    let begun = machine.wait(|| machine.value(cell, BEGUN) != 0);
    ensure(begun, || "the cell does not begin".to_owned())?;
    let guest = CODE_START + OFFSET;
    fill(machine, ONE.memory + OFFSET, 0x33);
    OF_CELL.copy(machine, cell, guest, false)?;
    // It still runs when the cell is destroyed, and is to write where the root will have memory.
    OF_CELL.begin(machine, cell, guest, true)?;
    machine.manage(Hypercall::CellDestroy, number)?;
    let is_zero = || holds(machine, ONE.memory + OFFSET, 0) && !holds(machine, guest, 0x33);
    ensure(is_zero(), || "the memory is not wiped".to_owned())?;
    OF_CELL.finish(machine, root(0))?;
    ensure(is_zero(), || "DMA of a destroyed cell".to_owned())?;
    // A cell that never runs does not change that, nor the root, which permits DMA again: what the device does
    // is the order of the cell.
    let number = machine.create(&blob)?;
    machine.manage(Hypercall::CellDestroy, number)?;
    for address in [ONE.memory + OFFSET, guest, RECEIVED] {
        OF_CELL.set_up(machine, root(0))?;
        let before = machine.bytes(address, BYTES);
        OF_CELL.copy(machine, root(0), address, true)?;
        ensure(machine.bytes(address, BYTES) == before, || {
            format!("DMA without an owner writes {address:#x}")
        })?;
    }
    let found = events(machine, &mut seen)?;
    let is_it = |&(owner, stream, event, _): &(u32, u32, u32, u64)| {
        (owner, stream, event) == (ROOT, OF_CELL.stream(), NO_OWNER)
    };
    ensure(found.len() >= 3 && found.iter().all(is_it), || {
        format!("events without an owner: {found:x?}")
    })?;
    // When the hypervisor has ended, the SMMU is as it was: off.
    machine.turn_on(ONE.cpus[0])?;
    for cpu in 1..crate::machine::CPUS as u64 {
        machine.begin(
            root(cpu),
            &[crate::machine::HVC],
            &[u64::from(u32::from(Hypercall::Disable))],
        );
    }
    let (left, _) = machine.call(root(0), Hypercall::Disable, 0, 0)?;
    ensure(left == 0, || format!("disable: {}", name(left)))?;
    let control = machine.device(root(0), REGISTERS + 0x20)?;
    ensure(control == 0, || format!("SMMU_CR0 is {control:#x}"))?;
    OF_CELL.copy(machine, root(0), RECEIVED, true)?;
    ensure(holds(machine, RECEIVED, 0x33), || {
        "DMA does not work in bypass".to_owned()
    })
}

/// The root tries to move addresses while a cell has a function, and to reach that function.
fn a_function_of_a_cell_is_not_configured_by_the_root(machine: &Machine) -> Attacked {
    let (own, other) = (OF_ROOT.page(), OF_CELL.page());
    let read = |address| machine.device(root(0), address);
    let identity = read(own)?;
    ensure(identity == 0x11e8_1234, || {
        format!("no device: {identity:#x}")
    })?;
    // Messages that the root has enabled would write to the cell's memory.
    let messages = (0x40..0x100)
        .step_by(4)
        .find(|offset| read(other + offset).is_ok_and(|word| word & 0xff == 5));
    let messages = other + messages.ok_or("no capability of messages")?;
    let word = read(messages)?;
    machine.set_device(root(0), messages, word | 1 << 16)?;

    let blob = cell_with(OF_CELL);
    let number = machine.start_hostile(&ONE, &blob)?;
    for offset in [0, 4, 0x10, 0x3c, 0x100] {
        let found = read(other + offset)?;
        ensure(found == 0xffff_ffff, || {
            format!("the root reads {found:#x} at {offset:#x}")
        })?;
        machine.set_device(root(0), other + offset, 0)?;
    }
    let bar = read(own + 0x10)?;
    machine.set_device(root(0), own + 0x10, OF_CELL.registers())?;
    let store_half = 0x7900_0001;
    machine.access(root(0), store_half, own + 0x12, OF_CELL.registers() >> 16)?;
    ensure(read(own + 0x10)? == bar, || {
        "the root moves an address".to_owned()
    })?;
    // The rest of its own function is the root's.
    machine.set_device(root(0), own + 4, 2)?;
    ensure(read(own + 4)? & 7 == 2, || {
        "the root's own function".to_owned()
    })?;
    let identity = machine.device(ONE.cpu(0), OF_CELL.registers())?;
    ensure(identity == 0x0100_00ed, || {
        format!("the cell's device: {identity:#x}")
    })?;
    machine.begin(ONE.cpu(0), &[LOAD], &[other]);
    let failed = || {
        let condition = machine.status().cells[number as usize].condition();
        condition.state == CellState::Failed
    };
    machine.wait(|| failed() || machine.is_done(ONE.cpu(0)));
    ensure(failed(), || "the cell reads its configuration".to_owned())?;
    machine.manage(Hypercall::CellDestroy, number)?;
    ensure(read(other + 0x10)? == OF_CELL.registers(), || {
        "the root has moved it".to_owned()
    })?;
    ensure(read(messages)? >> 16 & 1 == 0, || {
        "messages are enabled".to_owned()
    })?;
    machine.set_device(root(0), own + 0x10, WINDOW)?;
    ensure(read(own + 0x10)? == WINDOW, || "not returned".to_owned())?;
    machine.set_device(root(0), own + 0x10, OF_ROOT.registers())?;
    machine.turn_on(ONE.cpus[0])?;
    machine.expect_no_fault()
}

fn streams_and_functions_of_others_are_refused(machine: &Machine) -> Attacked {
    let other = Cell {
        name: "second",
        cpus: &[1],
        memory: 0x6200_0000,
    };
    for cpu in [1, 2] {
        machine.turn_off(cpu)?;
    }
    let first = machine.create(&cell_with(OF_CELL))?;
    let refused = |change: &dyn Fn(&mut Blob)| {
        let mut blob = other.blob();
        change(&mut blob);
        let (outcome, [reason, ..]) = machine.try_create(&blob)?;
        ensure(outcome == Outcome::Refused as i64, || name(outcome)).map(|()| reason)
    };
    let grant = OF_ROOT.grant();
    let space = region(SPACE, SPACE, 0x1000, DATA | MemoryFlags::DEVICE);
    let wrong = [
        (
            Refusal::StreamOwned,
            refused(&|it| it.streams = vec![OF_CELL.grant()])?,
        ),
        (
            Refusal::StreamOwned,
            refused(&|it| {
                it.streams = vec![StreamGrant {
                    first: grant.first,
                    ..OF_CELL.grant()
                }]
            })?,
        ),
        (
            Refusal::StreamRange,
            refused(&|it| {
                it.streams = vec![StreamGrant {
                    first: 0x1_0000,
                    ..grant
                }]
            })?,
        ),
        (
            Refusal::StreamRange,
            refused(&|it| {
                it.streams = vec![StreamGrant {
                    function: WINDOW,
                    ..grant
                }]
            })?,
        ),
        (
            Refusal::MemoryReserved,
            refused(&|it| it.memory.push(space))?,
        ),
    ];
    for (expected, found) in wrong {
        ensure(found == expected as u64, || {
            format!("{expected:?}: {found}")
        })?;
    }
    machine.manage(Hypercall::CellDestroy, first)?;
    machine.turn_on(1)?;
    machine.turn_on(2)
}
