// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The launch from Linux, in two steps. The first, on one CPU, makes all checks and allocations that can
//! fail, and returns EL2 to Linux. The second, on all CPUs at the same time, only uses the result: either
//! all CPUs stay in the hypervisor or none.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};

use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::interface::{Header, LAUNCH_PREPARE, Outcome, PAGE_BYTES};
use rampart_hypervisor_core::launch::Layout;

use crate::cpu::{Cpu, PER_CPU_BYTES};
use crate::machine::MACHINE;
use crate::registers::{
    WRITE_NEVER_EXECUTE, read_register, synchronise, wait_until, write_register,
};
use crate::stage1::{Mapping, Usage};
use crate::{features, root, smmu, stage1, vectors};

/// Linux's registers at the call; `entry.s` writes and reads it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LinuxState {
    /// SCTLR_EL2, with the MMU off.
    pub(crate) system_control: u64,
    /// VBAR_EL2, which suffices to return EL2.
    pub(crate) vectors: u64,
    /// SPSR_EL2.
    pub(crate) processor_state: u64,
    /// ELR_EL2.
    pub(crate) program_counter: u64,
    /// HCR_EL2.
    pub(crate) hypervisor_control: u64,
    /// CPTR_EL2.
    pub(crate) feature_traps: u64,
    /// x18 to x30, and one that is not used.
    pub(crate) registers: [u64; 14],
}

/// The result for `entry.s`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LaunchResult {
    /// The [`Outcome`] for Linux.
    pub(crate) outcome: i64,
    /// 1 if the hypervisor keeps EL2, otherwise 0.
    pub(crate) stays: u64,
}

// Symbols of the linker script; only their addresses are used.
unsafe extern "C" {
    static image_start: u8;
    static rodata_start: u8;
    static data_start: u8;
    static core_end: u8;
    fn abandon_launch(outcome: i64, linux: u64) -> !;
}

/// Called by `entry.s` on each CPU, with the MMU on and a stack.
#[unsafe(no_mangle)]
extern "C" fn launch(base: u64, index: u64, step: u64, linux: &LinuxState) -> LaunchResult {
    let result = if step == LAUNCH_PREPARE { prepare(base) } else { enter(index, linux) };
    LaunchResult {
        outcome: result.err().unwrap_or(Outcome::Success) as i64,
        stays: u64::from(result.is_ok() && step != LAUNCH_PREPARE),
    }
}

/// After a fault of the hypervisor: abandons the launch if it is in progress.
pub(crate) fn abandon_if_launching(cpu: &Cpu) {
    let linux = cpu.launching.swap(0, SeqCst);
    if linux != 0 {
        // SAFETY: `enter` has stored the address of the frame, which is still on the stack, above
        // everything pushed since.
        unsafe { abandon_launch(Outcome::Unsuitable as i64, linux) }
    }
}

fn prepare(base: u64) -> Result<(), Outcome> {
    // SAFETY: the entry has mapped the hypervisor's memory, which starts with the header; the driver
    // does not write it during this call.
    let header = unsafe { *(base as *const Header) };
    let layout = header.layout((&raw const image_start) as u64)?;
    let core_bytes = (&raw const core_end) as u64 - (&raw const image_start) as u64;
    if header.core_bytes != core_bytes || header.per_cpu_bytes != PER_CPU_BYTES as u64 {
        return Err(Outcome::Invalid);
    }
    // 4 KiB pages (ID_AA64MMFR0_EL1.TGran4, Arm ARM D24.2.187).
    if read_register!("id_aa64mmfr0_el1") >> 28 & 0xf == 0xf {
        return Err(Outcome::Unsuitable);
    }
    let system = root::read(&layout)?;
    let cpu_count = header.cpus().len() as u64;
    map(&layout, cpu_count, &system)?;
    stage1::use_final();
    let machine = root::discover(header, layout, &system)?;
    for index in 0..machine.cpu_count() {
        let cpu = machine.cpu(index).ok_or(Outcome::Invalid)?;
        let start = core::ptr::from_ref(cpu) as u64;
        cpu.stack_top.store(start + PER_CPU_BYTES as u64, SeqCst);
        cpu.index.store(index as u32, SeqCst);
    }
    root::prepare(machine, &system)
}

fn map(layout: &Layout, cpu_count: u64, system: &Configuration<'_>) -> Result<(), Outcome> {
    let code = (&raw const image_start) as u64;
    let constants = (&raw const rodata_start) as u64;
    let data = (&raw const data_start) as u64;
    let per_cpu = PER_CPU_BYTES as u64;
    let cpus = layout.per_cpu.clone();
    let mut mapping = Mapping::default();
    mapping.add(code, constants - code, Usage::CODE)?;
    mapping.add(constants, data - constants, Usage::CONSTANTS)?;
    mapping.add(data, cpus.start - data, Usage::DATA)?;
    for start in (0..cpu_count).map(|index| cpus.start + index * per_cpu) {
        mapping.add(start, PAGE_BYTES, Usage::DATA)?;
        // The page in between is the unmapped guard page of the stack.
        mapping.add(start + 2 * PAGE_BYTES, per_cpu - 2 * PAGE_BYTES, Usage::DATA)?;
    }
    mapping.add(cpus.end, layout.memory.end - cpus.end, Usage::DATA)?;
    root::map(system, &mut mapping)
}

/// Number of CPUs that have entered, and the outcome of the launch: [`UNDECIDED`], then an [`Outcome`].
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static OUTCOME: AtomicI64 = AtomicI64::new(UNDECIDED);
const UNDECIDED: i64 = 1;

fn enter(index: u64, linux: &LinuxState) -> Result<(), Outcome> {
    let machine = MACHINE.get().ok_or(Outcome::WrongState)?;
    let cpu = machine.cpu(index as usize).ok_or(Outcome::Invalid)?;
    cpu.adopt();
    cpu.launching.store(core::ptr::from_ref(linux) as u64, SeqCst);
    cpu.linux_system_control.store(linux.system_control, SeqCst);
    cpu.linux_vectors.store(linux.vectors, SeqCst);
    cpu.linux_hypervisor_control.store(linux.hypervisor_control, SeqCst);
    features::save(cpu);
    // From here on `handle_fault` handles a fault of the hypervisor.
    write_register!("vbar_el2", vectors::address());
    write_register!("sctlr_el2", read_register!("sctlr_el2") | WRITE_NEVER_EXECUTE);
    synchronise();

    match root::check_cpu(machine, cpu) {
        Err(outcome) => decide(outcome),
        Ok(()) if ARRIVED.fetch_add(1, SeqCst) + 1 != machine.header.cpu_count => {}
        Ok(()) => match smmu::enable() {
            Err(outcome) => decide(outcome),
            Ok(()) => {
                decide(Outcome::Success);
                if OUTCOME.load(SeqCst) != Outcome::Success as i64 {
                    smmu::disable();
                }
            }
        },
    }
    let limit = u64::from(machine.header.rendezvous_microseconds);
    if !wait_until(limit, &mut || OUTCOME.load(SeqCst) != UNDECIDED) {
        decide(Outcome::TimedOut);
    }
    let outcome = OUTCOME.load(SeqCst);
    if outcome != Outcome::Success as i64 {
        cpu.launching.store(0, SeqCst);
        return Err(Outcome::try_from(outcome).unwrap_or(Outcome::TimedOut));
    }
    root::begin(machine, cpu);
    cpu.launching.store(0, SeqCst);
    Ok(())
}

/// Sets the outcome of the launch. Only the first call has an effect, so a late CPU cannot change it.
fn decide(outcome: Outcome) {
    let _ = OUTCOME.compare_exchange(UNDECIDED, outcome as i64, SeqCst, SeqCst);
}
