// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measuring loops of `rampart-meter` without an operating system: reads orders from the region that the root
//! writes, and writes results to its own (`rampart_meter::cell`).
//!
//! The virtual timer (PPI 27) wakes the program and is the interrupt of `irq`; the physical timer (PPI 30) starts
//! blocks; Arm BSA, B.2.
#![no_std]
#![no_main]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_cells::{
    SHARED, TIMER, access_ticks, acknowledge, cacheable, distributor, enable, end, read_register,
    unmask, write_register,
};
use rampart_meter::cell::blocks::BlockMaker;
use rampart_meter::cell::loads::Loads;
use rampart_meter::cell::memory::{
    CellOutput, LOAD_BYTES, LOAD_START, ORDERS_BYTES, OUTPUT_BYTES, REVISION, Word,
};
use rampart_meter::cell::orders::Orders;
use rampart_meter::cell::program::{Hardware, Program};
use rampart_meter::engine::{Clock, Counter, Page, Registers, Sleep};
use rampart_meter::timescale::Timescale;
use rampart_model::Nanos;

/// The physical timer's interrupt (Arm BSA, B.2).
const BLOCK_TIMER: u64 = 30;
/// Interval at which the program polls for orders while it does not measure.
const IDLE: Nanos = Nanos::from_millis(5);

/// Offset of GICD_TYPER (GIC architecture specification, 12.9.38), which can be read without side effects.
const TRAPPED: u64 = 4;
/// The first word of the region that the root writes; uncached.
const MAPPED: u64 = SHARED + OUTPUT_BYTES as u64;
/// CNTV_CTL_EL0.ISTATUS (Arm ARM D24.10.22): the timer has expired.
const TIMER_STATUS: u64 = 1 << 2;

/// CNTVCT_EL0 when the timer's interrupt was taken, 0 until then.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The hardware of this CPU.
#[derive(Debug, Clone, Copy)]
struct CellHardware(Timescale);

impl CellHardware {
    /// Returns the first tick that is not before this time.
    fn tick_of(self, at: Nanos) -> u64 {
        let ticks = self.0.ticks(at);
        ticks + u64::from(self.0.moment(ticks) < at)
    }
}

impl Counter for CellHardware {
    #[inline(always)]
    fn read(&self) -> u64 {
        read_register!("cntvct_el0")
    }
}

impl Clock for CellHardware {
    #[inline(always)]
    fn now(&self) -> Nanos {
        // Keeps the read after earlier instructions (Arm ARM D11.2.2).
        // SAFETY: a barrier.
        unsafe { asm!("isb", options(nostack)) }
        self.0.moment(self.read())
    }
}

impl Sleep for CellHardware {
    fn sleep_until(&self, at: Nanos) -> bool {
        self.interrupt_at(at);
        // An interrupt between the check of the clock and the WFI still ends the WFI.
        // SAFETY: masks interrupts, which are unmasked below.
        unsafe { asm!("msr daifset, #2", options(nostack)) }
        if self.now() < at {
            // SAFETY: WFI changes no memory.
            unsafe { asm!("wfi", options(nostack)) }
        }
        unmask();
        true
    }
}

impl Registers for CellHardware {
    fn accesses(&self, page: Option<Page>) -> Nanos {
        self.0.length(access_ticks(page.map(|page| match page {
            Page::Mapped => MAPPED,
            Page::Trapped => distributor() + TRAPPED,
        })))
    }
}

impl Hardware for CellHardware {
    fn scale(&self) -> Timescale {
        self.0
    }

    fn start_blocks(&self) {
        write_register!("cntp_cval_el0", self.read());
        write_register!("cntp_ctl_el0", 1);
    }

    fn start_timer(&self, at: Nanos) {
        // An interrupt of the earlier sleep must not be taken for this one.
        write_register!("cntv_ctl_el0", 0);
        TAKEN.store(0, Relaxed);
        write_register!("cntv_cval_el0", self.tick_of(at));
        write_register!("cntv_ctl_el0", 1);
    }

    fn timer_taken(&self) -> Option<Nanos> {
        let taken = TAKEN.load(Relaxed);
        (taken != 0).then(|| self.0.moment(taken))
    }

    fn interrupt_at(&self, at: Nanos) {
        write_register!("cntv_cval_el0", self.tick_of(at));
        write_register!("cntv_ctl_el0", 1);
    }
}

/// The state of the interrupt handler.
struct Handler {
    hardware: CellHardware,
    output: CellOutput<'static>,
    blocks: BlockMaker<'static>,
}

struct Slot(UnsafeCell<Option<Handler>>);

// SAFETY: there is one CPU; it is written before interrupts are unmasked, and afterwards used only by the handler,
// which is not interrupted.
unsafe impl Sync for Slot {}

static HANDLER: Slot = Slot(UnsafeCell::new(None));

fn region(start: u64, bytes: usize) -> &'static [AtomicU64] {
    // SAFETY: the cell's configuration has this region; it is shared, so all accesses are atomic.
    unsafe { core::slice::from_raw_parts(start as *const AtomicU64, bytes / 8) }
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(_: u64) {
    let output = CellOutput::new(region(SHARED, OUTPUT_BYTES));
    let orders = Orders::new(region(SHARED + OUTPUT_BYTES as u64, ORDERS_BYTES));
    let scale = Timescale::of_frequency(read_register!("cntfrq_el0"));
    if let (Some(output), Some(orders), Some(scale)) = (output, orders, scale) {
        run(output, orders, CellHardware(scale));
    }
}

/// Executes orders in a loop. Returns if it cannot start: the root waits for the revision with a timeout.
fn run(output: CellOutput<'static>, orders: Orders<'static>, hardware: CellHardware) {
    let Some(blocks) = BlockMaker::new(&output, orders) else {
        return;
    };
    let Some(memory) = cacheable(LOAD_START, LOAD_BYTES as u64) else {
        return;
    };
    let loads = Loads::new(output, orders, memory);
    let Some(mut program) = Program::new(&hardware, (output, orders), loads) else {
        return;
    };
    // SAFETY: interrupts are still masked, see `Slot`.
    unsafe { *HANDLER.0.get() = Some(Handler { hardware, output, blocks }) }
    enable(TIMER);
    enable(BLOCK_TIMER);
    unmask();
    output.write(Word::Frequency, read_register!("cntfrq_el0"));
    output.write(Word::Revision, REVISION);
    output.count(Word::Begun);
    loop {
        program.serve();
        program.rest(hardware.now() + IDLE);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception(now: u64) {
    // SAFETY: see `Slot`.
    let Some(handler) = (unsafe { (*HANDLER.0.get()).as_mut() }) else {
        return;
    };
    // This and, below, its end are accesses to the physical CPU interface and cause no exit.
    let interrupt = acknowledge();
    match interrupt {
        // An interrupt that was retracted arrives with the status clear, and is ignored.
        TIMER if read_register!("cntv_ctl_el0") & TIMER_STATUS == 0 => {}
        TIMER => {
            write_register!("cntv_ctl_el0", 0);
            TAKEN.store(now, Relaxed);
            handler.output.count(Word::Interrupts);
        }
        BLOCK_TIMER => {
            write_register!("cntp_ctl_el0", 0);
            handler.output.count(Word::Interrupts);
            if let Some(at) = handler.blocks.step(&handler.hardware) {
                write_register!("cntp_cval_el0", handler.hardware.tick_of(at));
                write_register!("cntp_ctl_el0", 1);
            }
        }
        _ => handler.output.count(Word::Unexpected),
    }
    end(interrupt);
}
