// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tries to access every region of the machine from a cell, at EL1 and EL0, and the memory of the
//! hypervisor and of a cell from the root. The list of regions is generated from the machine's
//! device tree and from the system's configuration.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rampart_cells::device::Device;
use rampart_hypervisor_core::format::MemoryFlags;
use rampart_hypervisor_core::interface::{CellState, PAGE_BYTES, STATUS_BYTES, StopReason};

use crate::support::{
    BEGUN, CODE, CODE_BYTES, DONE, Done, FIRST, HYPERVISOR, NUMBER, ORDER_FIRST, ORDER_SECOND,
    ORDER_THIRD, ORDERS, Physical, Plan, RESULT, SECOND, SHARED, latest_failure, report, state,
    system, wait_until,
};

/// A range of physical addresses.
struct Range {
    name: String,
    start: u64,
    /// End, exclusive.
    end: u64,
    /// Accesses are emulated: the interrupt controller.
    emulated: bool,
}

const FROM_TREE: &str = "/proc/device-tree";

fn cells_of(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap_or_default();
    let word = |word: &[u8]| {
        word.iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    bytes.chunks_exact(4).map(word).collect()
}

/// Returns the ranges of the device tree, including PCI windows.
fn from_tree() -> Result<Vec<Range>, Box<dyn std::error::Error>> {
    let mut locations = Vec::new();
    for entry in fs::read_dir(FROM_TREE)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let emulated = name.starts_with("intc@");
        let mut add = |what: &str, start: u64, bytes: u64| {
            locations.push(Range {
                name: format!("{name}{what}"),
                start,
                end: start + bytes,
                emulated,
            });
        };
        for four in cells_of(&entry.path().join("reg")).chunks_exact(4) {
            add("", four[0] << 32 | four[1], four[2] << 32 | four[3]);
        }
        if name.starts_with("pcie@") {
            // Three words of the bus, two of the address, two of the size (IEEE 1275, PCI binding).
            for seven in cells_of(&entry.path().join("ranges")).chunks_exact(7) {
                add(
                    " window",
                    seven[3] << 32 | seven[4],
                    seven[5] << 32 | seven[6],
                );
            }
        }
    }
    locations.sort_by_key(|location| location.start);
    Ok(locations)
}

/// Returns all ranges that a cell may not access: those of the tree, of the root, of the other
/// cell, of the hypervisor, and the gaps between them.
fn foreign_ranges() -> Result<Vec<Range>, Box<dyn std::error::Error>> {
    let mut locations = from_tree()?;
    let blob = system()?;
    let platform = blob.platform.ok_or("no platform")?;
    let named = |name: &str, start: u64, end: u64| Range {
        name: format!("{name} {start:#x}"),
        start,
        end,
        emulated: false,
    };
    // What exists of the interrupt controller: of a GICv3 two frames per CPU, of a GICv2 less than its node names.
    let mut frames = [platform.distributor_range(), platform.cpu_frame_range()];
    if platform.version == 3 {
        frames[1].1 = 0x2_0000 * blob.cpus.len() as u64;
    }
    let mut rest = Vec::new();
    for location in locations.iter_mut().filter(|location| location.emulated) {
        let frame = frames.iter().find(|(start, _)| *start == location.start);
        let end = frame.map_or(location.start, |(start, bytes)| start + bytes);
        location.emulated = frame.is_some();
        if frame.is_some() && platform.version == 2 {
            let name = format!("rest of {}", location.name);
            rest.push(named(&name, end, location.end));
        }
        if frame.is_some() {
            location.end = end;
        }
    }
    locations.extend(rest);
    locations.sort_by_key(|location| location.start);
    let mut holes = Vec::new();
    let mut after = 0;
    for location in &locations {
        if location.start > after {
            holes.push((after, location.start));
        }
        after = after.max(location.end);
    }
    // Up to the last address of the machine's description, and beyond it.
    let end = blob
        .memory
        .iter()
        .map(|region| region.physical + region.bytes)
        .max();
    let end = end.ok_or("no memory")?;
    holes.push((after, end));
    holes.push((end, 2 * end));
    locations.extend(
        holes
            .into_iter()
            .map(|(start, end)| named("hole", start, end)),
    );
    for region in &blob.memory {
        let device = region.flags & MemoryFlags::DEVICE.bits() != 0;
        let name = if device {
            "the root's devices"
        } else {
            "the root's memory"
        };
        locations.push(named(name, region.physical, region.physical + region.bytes));
    }
    let other = FIRST.blob(0);
    for region in &other.memory {
        locations.push(named(
            "the other cell's",
            region.physical,
            region.physical + region.bytes,
        ));
    }
    locations.push(named(
        "the hypervisor's",
        HYPERVISOR.0,
        HYPERVISOR.0 + HYPERVISOR.1,
    ));
    Ok(locations)
}

/// Returns whether the cell has memory of its own at this address of its address space.
fn is_own(address: u64) -> bool {
    (CODE..CODE + CODE_BYTES).contains(&address) || (SHARED..ORDERS + PAGE_BYTES).contains(&address)
}

/// Returns addresses of the first and last word and of one in the middle, except where the cell has
/// memory of its own.
fn addresses(location: &Range) -> Vec<u64> {
    let start = if is_own(location.start) {
        CODE + CODE_BYTES
    } else {
        location.start
    };
    let middle = start + (location.end - start) / 2;
    let mut all = vec![start, middle & !7, location.end - 8];
    // A device may be smaller than its range.
    all.retain(|address| (location.start..location.end).contains(address) && !is_own(*address));
    all.dedup();
    all
}

/// The order for the program, its description, and the expected failure.
type Kind = (u64, &'static str, StopReason);

const KINDS: [Kind; 3] = [
    (0, "read", StopReason::MemoryRead),
    (1, "write", StopReason::MemoryWrite),
    (2, "execute", StopReason::MemoryExecute),
];
/// Class in ESR_EL1 of the `svc` with which the program reports that an access succeeded.
const LET: u64 = 0x15;
const EXECUTE: u64 = 2;

/// One program in one cell, restarted for each attempt.
struct Attempts<'a> {
    device: &'a Device,
    cell: u32,
    orders: Physical,
    page: Physical,
    count: u64,
}

impl Attempts<'_> {
    /// Returns a description of the problem, if any.
    fn at(
        &mut self,
        address: u64,
        level: u64,
        (kind, _, reason): Kind,
        emulated: bool,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.count += 1;
        self.orders.set(ORDER_FIRST, kind);
        self.orders.set(ORDER_SECOND, address);
        self.orders.set(ORDER_THIRD, level);
        self.orders.set(NUMBER, self.count);
        self.device.start(self.cell)?;
        let (device, cell, page, count) = (self.device, self.cell, &self.page, self.count);
        let over = wait_until(Duration::from_secs(10), || {
            state(device, cell).0 == CellState::Failed || page.word(DONE) == count
        });
        let (state, found) = state(device, cell);
        if !over {
            return Err(format!("no effect: {state:?}, begun {}", page.word(BEGUN)).into());
        }
        if emulated && kind != EXECUTE {
            let result = page.word(RESULT);
            device.stop(cell)?;
            return if state == CellState::Running && result == LET {
                Ok(())
            } else {
                Err(format!("{state:?} {found:?}, result {result:#x}").into())
            };
        }
        if state != CellState::Failed || found != reason {
            let result = page.word(RESULT);
            let _ = device.stop(cell);
            return Err(format!("{state:?} {found:?}, result {result:#x}").into());
        }
        let record = latest_failure(device, cell).ok_or("no record")?;
        // SPSR_EL2.M: 0 is EL0, 5 is EL1 with its own stack.
        let at_level = record.processor_state & 0xf == 5 * level;
        if record.guest_address != address || !at_level || record.reason != u32::from(reason) {
            return Err(format!("the record belongs to another failure: {record:x?}").into());
        }
        Ok(())
    }
}

/// Tries all accesses from a cell.
pub(crate) fn from_a_cell(device: &Device, program: &[u8]) -> Done {
    let orders = SECOND.order_page();
    let cell = device.create(&SECOND.blob(0).bytes())?;
    device.load(cell, CODE, program)?;
    let mut attempts = Attempts {
        device,
        cell,
        orders,
        page: SECOND.page(),
        count: 0,
    };
    attempts.orders.set(NUMBER, 0);
    let locations = foreign_ranges()?;
    let mut wrong = 0;
    let mut attempt = |name: &str, address: u64, kind: Kind, emulated: bool| -> Done {
        for level in [0, 1] {
            if let Err(error) = attempts.at(address, level, kind, emulated) {
                wrong += 1;
                let what = format!("{name}: {} {address:#x} at EL{level}", kind.1);
                report(false, &format!("{what}: {error}"));
                if wrong > 10 {
                    return Err("too many failed attempts".into());
                }
            }
        }
        Ok(())
    };
    for location in &locations {
        for address in addresses(location) {
            for kind in KINDS {
                attempt(&location.name, address, kind, location.emulated)?;
            }
        }
    }
    // Pages of the cell with other permissions give permission faults; all other addresses give
    // translation faults.
    let [_, write, execute] = KINDS;
    attempt("the page of orders", ORDERS + 0x800, write, false)?;
    attempt("the page of orders", ORDERS + 0x800, execute, false)?;
    attempt("the shared page", SHARED + 0x800, execute, false)?;
    println!(
        "figure attempts {} at {} locations",
        attempts.count,
        locations.len()
    );
    let enough = locations.len() > 50 && attempts.count > 500;
    report(
        enough && wrong == 0,
        "a cell accesses only its own memory and devices",
    );
    device.destroy(cell)?;
    Ok(())
}

/// Number of accesses that raised SIGBUS.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Skips the instruction that raised the signal.
extern "C" fn refused(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    REFUSED.fetch_add(1, Relaxed);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel passes the context of the interrupted thread; each instruction has four
    // bytes.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc += 4;
    }
    #[cfg(not(target_arch = "aarch64"))]
    panic!("{context:?}: only arm64 has the hypervisor");
}

/// Installs the handler; replaces other handlers of SIGBUS.
pub(crate) fn go_on_when_refused() {
    // SAFETY: the handler only uses an atomic and the context.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refused as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// Loads or stores one byte. Returns whether the access was refused.
pub(crate) fn is_refused(memory: &Physical, offset: u64, write: bool) -> bool {
    let before = REFUSED.load(Relaxed);
    let at = memory.address(offset);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: this test may access the memory, or the handler skips the access.
    unsafe {
        if write {
            std::arch::asm!("strb wzr, [{}]", in(reg) at, options(nostack));
        } else {
            std::arch::asm!("ldrb {:w}, [{}]", out(reg) _, in(reg) at, options(nostack));
        }
    }
    #[cfg(not(target_arch = "aarch64"))]
    let _ = (at, write);
    REFUSED.load(Relaxed) != before
}

/// Returns how many pages the root can read and write.
fn reachable(start: u64, bytes: u64) -> (u64, u64) {
    let memory = Physical::map(start, bytes, true);
    let count = |write: bool| {
        let reached = |page: &u64| !is_refused(&memory, page * PAGE_BYTES, write);
        (0..bytes / PAGE_BYTES).filter(reached).count() as u64
    };
    (count(false), count(true))
}

/// Tries to access the memory of the hypervisor and of the other cell from the root, page by page.
/// Does not try to execute: Linux maps such memory as never executable, and would fault endlessly.
pub(crate) fn from_the_root() -> Done {
    let status_pages = STATUS_BYTES as u64 / PAGE_BYTES;
    let found = reachable(HYPERVISOR.0, HYPERVISOR.1);
    report(
        found == (status_pages, 0),
        &format!("the root reads only the hypervisor's status pages: {found:?}"),
    );
    let Plan { memory, .. } = FIRST;
    let found = reachable(memory, CODE_BYTES);
    report(
        found == (0, 0),
        &format!("the root cannot access a page of the cell: {found:?}"),
    );
    let found = reachable(FIRST.shared(), PAGE_BYTES);
    report(
        found == (1, 0),
        &format!("the root reads the cell's page and cannot write it: {found:?}"),
    );
    Ok(())
}
