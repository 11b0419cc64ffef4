// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common parts of the checks: cells, physical memory, and the other cell that must not be
//! disturbed.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rampart_cells::describe::{Description, Sources, TreeDevice, describe};
use rampart_cells::device::{Device, DeviceError};
use rampart_cells::system_configuration::SystemParts;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{
    Doorbell, InterruptFlags, InterruptGrant, MemoryFlags, MemoryRegion,
};
use rampart_hypervisor_core::interface::{
    CellState, Exit, FAILURE_SLOTS, Failure, Outcome, StopReason,
};

pub(crate) type Done = Result<(), Box<dyn std::error::Error>>;

/// Start and size of the hypervisor's memory.
pub(crate) const HYPERVISOR: (u64, u64) = (0x7000_0000, 8 << 20);
/// Addresses in a cell's address space of its loadable memory, of the page that it writes, of the
/// page that the root writes, of the page of the other cell, and of memory of its own that is not
/// loaded: `hypervisor/cells/src/lib.rs`.
pub(crate) const CODE: u64 = 0x4000_0000;
pub(crate) const CODE_BYTES: u64 = 2 << 20;
pub(crate) const SHARED: u64 = 0x5000_0000;
pub(crate) const ORDERS: u64 = 0x5000_1000;
pub(crate) const OTHER_PAGE: u64 = 0x5000_2000;
pub(crate) const PRIVATE: u64 = 0x6000_0000;
pub(crate) const PRIVATE_BYTES: u64 = 1 << 20;
/// Words of the shared page, as in that file.
pub(crate) const BEGUN: usize = 0;
pub(crate) const INTERRUPTS: usize = 1;
pub(crate) const EXCEPTIONS: usize = 2;
pub(crate) const RESULT: usize = 3;
pub(crate) const UNEXPECTED: usize = 4;
pub(crate) const DEVICE: usize = 5;
pub(crate) const DONE: usize = 6;
pub(crate) const MESSAGE: usize = 8;
pub(crate) const SECOND_INTERRUPTS: usize = 17;
/// Words of the page of orders.
pub(crate) const NUMBER: usize = 0;
pub(crate) const ORDER_FIRST: usize = 1;
pub(crate) const ORDER_SECOND: usize = 2;
pub(crate) const ORDER_THIRD: usize = 3;

/// Interrupts without a device (QEMU, hw/arm/virt.c: `a15irqmap`): the one with which the
/// hypervisor and cells notify the root, and the bells of two cells.
pub(crate) const EVENT: u32 = 255;
pub(crate) const BELLS: [u32; 2] = [250, 251];

/// Maximum waiting time for an event.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// How long calls are repeated for which a CPU is late.
const LATE: Duration = Duration::from_secs(60);

pub(crate) fn report(passed: bool, what: &str) {
    println!("{}  {what}", if passed { "ok" } else { "FAILED" });
}

/// Physical memory.
#[derive(Debug)]
pub(crate) struct Physical {
    start: *mut u8,
    bytes: u64,
}

impl Physical {
    /// Maps the memory for reading, and for writing if `writable`.
    pub(crate) fn map(address: u64, bytes: u64, writable: bool) -> Self {
        let memory = OpenOptions::new()
            .read(true)
            .write(writable)
            .open("/dev/mem")
            .unwrap();
        let writes = if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping without references to it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | writes,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                address as libc::off_t,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "{address:#x}");
        Self {
            start: start.cast(),
            bytes,
        }
    }

    /// Maps one page for reading.
    pub(crate) fn open(address: u64) -> Self {
        Self::map(address, 4096, false)
    }

    pub(crate) fn address(&self, offset: u64) -> *mut u8 {
        assert!(offset < self.bytes);
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset as usize) }
    }

    fn at(&self, index: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, aligned, and mapped as long as `self` lives.
        unsafe { AtomicU64::from_ptr(self.address(8 * index as u64).cast()) }
    }

    pub(crate) fn word(&self, index: usize) -> u64 {
        self.at(index).load(Relaxed)
    }

    pub(crate) fn set(&self, index: usize, value: u64) {
        self.at(index).store(value, Relaxed);
    }

    /// Reads a device register of 32 bits. Not inlined: the hypervisor decodes only plain loads and
    /// stores, not those that write back their base register.
    #[inline(never)]
    pub(crate) fn register(&self, offset: u64) -> u32 {
        // SAFETY: as in `at`.
        unsafe { AtomicU32::from_ptr(self.address(offset).cast()) }.load(Relaxed)
    }

    #[inline(never)]
    pub(crate) fn set_register(&self, offset: u64, value: u32) {
        // SAFETY: as in `at`.
        unsafe { AtomicU32::from_ptr(self.address(offset).cast()) }.store(value, Relaxed);
    }

    /// Returns whether the memory is zero.
    pub(crate) fn is_zero(&self) -> bool {
        (0..(self.bytes / 8) as usize).all(|index| self.word(index) == 0)
    }

    pub(crate) fn fill(&self, value: u64) {
        (0..(self.bytes / 8) as usize).for_each(|index| self.set(index, value));
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; no reference outlives `self`.
        unsafe {
            libc::munmap(self.start.cast(), self.bytes as usize);
        }
    }
}

/// A cell of the tests: CPUs, loadable memory, a page that the root reads, and one that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) cpus: &'static [u64],
    pub(crate) memory: u64,
}

/// The cell that runs beside all others.
pub(crate) const FIRST: Plan = Plan {
    name: "first",
    cpus: &[3],
    memory: 0x7100_0000,
};
pub(crate) const SECOND: Plan = Plan {
    name: "second",
    cpus: &[2],
    memory: 0x7200_0000,
};
pub(crate) const THIRD: Plan = Plan {
    name: "third",
    cpus: &[1],
    memory: 0x7300_0000,
};
pub(crate) const PAIR: Plan = Plan {
    name: "pair",
    cpus: &[1, 2],
    memory: 0x7400_0000,
};

pub(crate) fn region(physical: u64, guest: u64, bytes: u64, flags: MemoryFlags) -> MemoryRegion {
    MemoryRegion {
        physical,
        guest,
        bytes,
        flags: flags.bits(),
        colours: 0,
    }
}

impl Plan {
    pub(crate) fn cpu(&self) -> usize {
        self.cpus[0] as usize
    }

    pub(crate) fn shared(&self) -> u64 {
        self.memory + CODE_BYTES
    }

    pub(crate) fn orders(&self) -> u64 {
        self.shared() + 4096
    }

    /// Maps the page that the cell writes.
    pub(crate) fn page(&self) -> Physical {
        Physical::open(self.shared())
    }

    /// Maps the page that the cell reads, and clears it.
    pub(crate) fn order_page(&self) -> Physical {
        let page = Physical::map(self.orders(), 4096, true);
        page.fill(0);
        page
    }

    pub(crate) fn blob(&self, argument: u64) -> Blob {
        let data = MemoryFlags::READ | MemoryFlags::WRITE;
        let code = data | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
        let shared = data | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
        let orders = MemoryFlags::READ
            | MemoryFlags::SHARED
            | MemoryFlags::ROOT_READ
            | MemoryFlags::ROOT_WRITE;
        Blob {
            name: self.name.to_owned(),
            entry: CODE,
            argument,
            cpus: self.cpus.to_vec(),
            memory: vec![
                region(self.memory, CODE, CODE_BYTES, code),
                region(self.shared(), SHARED, 4096, shared),
                region(self.orders(), ORDERS, 4096, orders),
            ],
            ..Blob::default()
        }
    }

    /// Creates, loads and starts the cell; returns its number.
    pub(crate) fn start(
        &self,
        device: &Device,
        argument: u64,
        program: &[u8],
    ) -> Result<u32, DeviceError> {
        start(device, &self.blob(argument), program)
    }

    /// Starts the cell and waits until its program has begun.
    pub(crate) fn begin(
        &self,
        device: &Device,
        blob: &Blob,
        program: &[u8],
    ) -> Result<u32, Box<dyn std::error::Error>> {
        let page = self.page();
        let begun = page.word(BEGUN);
        let cell = start(device, blob, program)?;
        if wait_until(TIMEOUT, || page.word(BEGUN) != begun) {
            return Ok(cell);
        }
        let found = state(device, cell);
        device.destroy(cell)?;
        Err(format!("{}: the program did not start: {found:?}", self.name).into())
    }
}

/// Creates, loads and starts a cell; returns its number.
pub(crate) fn start(device: &Device, blob: &Blob, program: &[u8]) -> Result<u32, DeviceError> {
    let cell = device.create(&blob.bytes())?;
    let begun = device
        .load(cell, CODE, program)
        .and_then(|()| device.start(cell));
    if begun.is_err() {
        // Report the first error.
        let _ = device.destroy(cell);
    }
    begun.map(|()| cell)
}

pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    let mut pause = Duration::from_micros(100);
    while begin.elapsed() < limit {
        if condition() {
            return true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    condition()
}

/// Returns what the device tree of this machine describes.
pub(crate) fn described() -> Result<Description, Box<dyn std::error::Error>> {
    Ok(describe(&Sources::of_this_machine()?))
}

/// Returns the device of this kind, by the most specific word of its `compatible`.
pub(crate) fn device_of(compatible: &str) -> Result<TreeDevice, Box<dyn std::error::Error>> {
    let mut devices = described()?.devices.into_iter();
    let found = devices.find(|device| {
        device
            .compatible
            .first()
            .is_some_and(|one| one == compatible)
    });
    found.ok_or_else(|| format!("the device tree has no {compatible}").into())
}

/// Returns the system's configuration: the whole machine, an interrupt for notifications of the
/// root, and the root's doorbells, which are the bells of two cells.
pub(crate) fn system() -> Result<Blob, Box<dyn std::error::Error>> {
    let machine = SystemParts::read(Path::new("/proc/device-tree"), 40)?;
    let mut blob = machine.system(HYPERVISOR);
    if let Some(platform) = &mut blob.platform {
        platform.event_interrupt = EVENT;
    }
    blob.interrupts = vec![InterruptGrant {
        number: EVENT,
        flags: InterruptFlags::DOORBELL.bits(),
    }];
    blob.doorbells = BELLS.map(doorbell).to_vec();
    Ok(blob)
}

pub(crate) fn doorbell(interrupt: u32) -> Doorbell {
    Doorbell {
        interrupt,
        reserved: 0,
    }
}

pub(crate) fn enable(device: &Device) -> Done {
    let blob = system()?.checked();
    let blob = blob.map_err(|refused| format!("{refused:?}"))?;
    in_time(|| device.enable(HYPERVISOR.0, HYPERVISOR.1, &blob).map(drop))
}

pub(crate) fn disable(device: &Device) -> Done {
    in_time(|| device.disable())
}

/// Makes a call for which all CPUs must arrive in time. On a busy host one of the emulated CPUs may be late: then
/// nothing has changed, and the call is made again.
fn in_time(mut call: impl FnMut() -> Result<(), DeviceError>) -> Done {
    let begin = Instant::now();
    loop {
        match call() {
            Err(DeviceError::Hypervisor {
                outcome: Outcome::TimedOut,
                ..
            }) if begin.elapsed() < LATE => println!("figure late: another try"),
            answer => return Ok(answer?),
        }
    }
}

pub(crate) fn exits(device: &Device, cpu: usize) -> Vec<u64> {
    device.status().unwrap().exits(cpu)
}

/// Returns the number of exits that an interrupt may not cause.
pub(crate) fn all_exits(device: &Device, cpu: usize) -> u64 {
    exits_for_interrupts(device, cpu).iter().sum()
}

/// Returns whether the script declares that sleeping traps, as with two security states.
pub(crate) fn sleeping_traps() -> bool {
    std::env::var_os("SLEEPING_TRAPS").is_some()
}

/// Returns the exits that an interrupt may not cause, without those for sleeping if it traps.
fn exits_for_interrupts(device: &Device, cpu: usize) -> Vec<u64> {
    let mut exits = exits(device, cpu);
    if sleeping_traps() {
        exits[Exit::Wait as usize] = 0;
    }
    exits
}

pub(crate) fn state(device: &Device, cell: u32) -> (CellState, StopReason) {
    let status = device.status().unwrap();
    let condition = status.get().cells[cell as usize].condition();
    (condition.state, condition.stop_reason)
}

/// The content of a failure record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) time: u64,
    pub(crate) cell: u32,
    pub(crate) cpu: usize,
    pub(crate) reason: u32,
    pub(crate) guest_address: u64,
    pub(crate) program_counter: u64,
    pub(crate) processor_state: u64,
    pub(crate) registers: Vec<u64>,
}

/// Returns the latest failure if it is complete and belongs to this cell.
pub(crate) fn latest_failure(device: &Device, cell: u32) -> Option<Record> {
    let status = device.status().ok()?;
    let status = status.get();
    let number = status.cells[cell as usize].condition().failure;
    let slot: &Failure = &status.failure[number.checked_sub(1)? as usize % FAILURE_SLOTS];
    let record = Record {
        time: slot.time.load(Relaxed),
        cell: slot.cell.load(Relaxed),
        cpu: slot.cpu.load(Relaxed) as usize,
        reason: slot.reason.load(Relaxed),
        guest_address: slot.guest_address.load(Relaxed),
        program_counter: slot.program_counter.load(Relaxed),
        processor_state: slot.processor_state.load(Relaxed),
        registers: slot
            .registers
            .iter()
            .map(|word| word.load(Relaxed))
            .collect(),
    };
    (slot.sequence.load(Relaxed) as u32 == number && record.cell == cell).then_some(record)
}

/// Waits with poll(2) until the cell is in this state. Returns whether it reached the state.
pub(crate) fn wait_for_state(
    device: &Device,
    cell: u32,
    wanted: CellState,
) -> std::io::Result<bool> {
    let begin = Instant::now();
    while state(device, cell).0 != wanted {
        if begin.elapsed() > TIMEOUT || !device.wait(TIMEOUT)? {
            return Ok(state(device, cell).0 == wanted);
        }
    }
    Ok(true)
}

/// The state of the other cell before a check.
pub(crate) struct OtherCell<'a> {
    device: &'a Device,
    page: Physical,
    interrupts: u64,
    unexpected: u64,
    exits: Vec<u64>,
}

impl<'a> OtherCell<'a> {
    pub(crate) fn look(device: &'a Device) -> Self {
        let page = FIRST.page();
        Self {
            device,
            interrupts: page.word(INTERRUPTS),
            unexpected: page.word(UNEXPECTED),
            exits: exits_for_interrupts(device, FIRST.cpu()),
            page,
        }
    }

    /// Checks that the other cell continues without an exit and without a foreign interrupt.
    pub(crate) fn check(&self, name: &str) {
        let from = self.page.word(INTERRUPTS).max(self.interrupts);
        let counted = wait_until(TIMEOUT, || self.page.word(INTERRUPTS) > from + 20);
        let same = exits_for_interrupts(self.device, FIRST.cpu()) == self.exits
            && self.page.word(UNEXPECTED) == self.unexpected;
        report(
            counted && same,
            &format!("{name}: the other cell is not disturbed"),
        );
    }
}

/// Runs a check beside the other cell; prints its error and continues.
pub(crate) fn beside(device: &Device, name: &str, work: impl FnOnce() -> Done) {
    let other = OtherCell::look(device);
    if let Err(error) = work() {
        report(false, &format!("{name}: {error}"));
    }
    other.check(name);
}

/// Checks interrupts without exits: `words` of the shared page must grow by `wanted` each, while
/// the CPUs do not exit to the hypervisor.
pub(crate) fn without_exits(
    device: &Device,
    what: &str,
    plan: &Plan,
    words: &[usize],
    wanted: u64,
) {
    let page = plan.page();
    let counts = || {
        words
            .iter()
            .map(|word| page.word(*word))
            .collect::<Vec<_>>()
    };
    let all = || {
        plan.cpus
            .iter()
            .flat_map(|cpu| exits_for_interrupts(device, *cpu as usize))
            .sum::<u64>()
    };
    let first = counts();
    let grown = |from: &[u64], by: u64| {
        counts()
            .iter()
            .zip(from)
            .all(|(now, from)| now - from >= by)
    };
    // The setup of the program is complete by then.
    wait_until(TIMEOUT, || grown(&first, 10));
    let (before, from) = (all(), counts());
    wait_until(3 * TIMEOUT, || grown(&from, wanted));
    let taken: Vec<u64> = counts()
        .iter()
        .zip(&from)
        .map(|(now, from)| now - from)
        .collect();
    let exits = all() - before;
    println!("figure {what}: interrupts {taken:?} exits {exits}");
    report(
        taken.iter().all(|taken| *taken >= wanted) && exits == 0,
        &format!("{what}: no exit for an interrupt"),
    );
}
