// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root: set up at the launch from the system's configuration, and the return of EL2 to Linux.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use rampart_hypervisor_core::configuration::{Configuration, Kind, Refused, machine_checks};
use rampart_hypervisor_core::format::MemoryFlags;
use rampart_hypervisor_core::interface::{
    CpuPower, CpuStatus, Header, MAXIMUM_CELLS, Outcome, PAGE_BYTES, ROOT, STATUS_BYTES,
};
use rampart_hypervisor_core::launch::Layout;
use rampart_hypervisor_core::memory_transfer;
use rampart_hypervisor_core::protocol::{CpuState, Leaving, LeavingStep, Work};
use rampart_hypervisor_core::stage2::{
    MAXIMUM_ADDRESS_BITS, MINIMUM_ADDRESS_BITS, PagePool, Stage2, attributes,
};

use crate::cpu::{Cpu, Registers};
use crate::exits::Context;
use crate::guest;
use crate::machine::{MACHINE, Machine, status};
use crate::manager::{DOORBELLS, MANAGER, Manager, Shared};
use crate::registers::{ADDRESS_BITS, publish_stores, read_register, wait_until, write_register};
use crate::stage1::{Mapping, Usage};
use crate::stage2_memory::Tables;
use crate::{features, gic, smmu};

unsafe extern "C" {
    /// `entry.s`: returns EL2 to the stub and continues the caller with `registers`.
    fn leave_to_linux(registers: *const Registers, system_control: u64, vectors: u64) -> !;
}

/// Timeout for a CPU that Linux has turned off to be turned off by the firmware, in microseconds.
const POWER_OFF_MICROSECONDS: u64 = 100_000;

/// Returns the address bits of guests on this CPU: those of ID_AA64MMFR0_EL1.PARange (Arm ARM D24.2.187), limited to
/// what the tables support.
///
/// # Errors
/// [`Outcome::Unsuitable`] if the CPU has fewer than the tables need.
fn address_bits() -> Result<u32, Outcome> {
    let range = read_register!("id_aa64mmfr0_el1") as usize & 0xf;
    let bits = [32, 36, 40, 42, 44].get(range).copied().unwrap_or(48);
    if bits < MINIMUM_ADDRESS_BITS {
        return Err(Outcome::Unsuitable);
    }
    Ok(bits.min(MAXIMUM_ADDRESS_BITS))
}

/// Reads the system's configuration, with the early translation.
pub(crate) fn read(layout: &Layout) -> Result<Configuration<'static>, Outcome> {
    let mut manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let start = layout.pool.start;
    let pages = (layout.pool.end - start) / PAGE_BYTES;
    let manager = manager.insert(Manager {
        pool: PagePool::new(start, pages as usize),
        stage_2: [const { None }; MAXIMUM_CELLS],
        work: [Work::Ready; MAXIMUM_CELLS],
        sources: [(0, 0); MAXIMUM_CELLS],
    });
    let blob = layout.configuration.clone();
    let copy = |target: &mut [u8]| {
        // SAFETY: the layout is checked: this is the hypervisor's memory, as long as `target`, and there
        // are no other references to it.
        target.copy_from_slice(unsafe {
            core::slice::from_raw_parts(blob.start as *const u8, target.len())
        });
    };
    let configuration = manager
        .read(ROOT, Kind::System, blob.end - blob.start, copy)
        .map_err(|refused| refuse(layout, refused))?;
    manager.set(ROOT, Some(configuration));
    Ok(configuration)
}

/// Stores reason and entry in the status pages, because the stub returns only one number.
pub(crate) fn refuse(layout: &Layout, refused: Refused) -> Outcome {
    let status = status(layout);
    status.refusal.store(refused.refusal as u64, SeqCst);
    status.refused_entry.store(refused.index.into(), SeqCst);
    Outcome::Refused
}

/// Maps for the monitor, besides its own memory: the interrupt controller, devices whose registers can be
/// shared, and all memory that can be assigned to cells, to wipe it.
pub(crate) fn map(system: &Configuration<'_>, mapping: &mut Mapping) -> Result<(), Outcome> {
    if let Some(platform) = system.platform {
        for (start, bytes) in [platform.distributor_range(), platform.cpu_frame_range()] {
            mapping.add(start, bytes, Usage::DEVICE)?;
        }
    }
    smmu::map(system, mapping)?;
    for region in system.memory {
        let usage =
            if region.flags().contains(MemoryFlags::DEVICE) { Usage::DEVICE } else { Usage::DATA };
        // Devices beyond the monitor's address space cannot be shared.
        let end = (region.physical + region.bytes).min(1 << ADDRESS_BITS);
        if region.physical < end {
            mapping.add(region.physical, end - region.physical, usage)?;
        }
    }
    Ok(())
}

/// Reads the properties of the machine and checks the configuration against them. Needs the final
/// translation: the early one maps only the hypervisor's memory, not the interrupt controller.
pub(crate) fn discover(
    header: Header,
    layout: Layout,
    system: &Configuration<'_>,
) -> Result<&'static Machine, Outcome> {
    let platform = system.platform.ok_or(Outcome::Invalid)?;
    let (controller, address_bits) = (gic::find(platform, header.cpus())?, address_bits()?);
    let machine = MACHINE.call_once(|| Machine {
        header,
        layout,
        distributor: platform.distributor,
        controller,
        address_bits,
    });
    machine_checks::check_system(system, &machine.facts())
        .map_err(|refused| refuse(&machine.layout, refused))?;
    Ok(machine)
}

/// Creates the root's translation: the regions of the configuration, identity-mapped, and the status pages,
/// read-only.
pub(crate) fn prepare(machine: &Machine, system: &Configuration<'_>) -> Result<(), Outcome> {
    let exhausted = |_| Outcome::Exhausted;
    let mut manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let manager = manager.as_mut().ok_or(Outcome::WrongState)?;
    let mut tables = Tables { pool: &mut manager.pool, cell: ROOT };
    let mut stage_2 = Stage2::new(machine.address_bits, &mut tables).map_err(exhausted)?;
    memory_transfer::map_regions(&mut stage_2, system, &mut tables).map_err(exhausted)?;
    #[cfg(feature = "gicv2")]
    gic::map_for_guest(machine, &mut stage_2, &mut tables).map_err(exhausted)?;
    let status = machine.layout.status.start;
    let flags = attributes(MemoryFlags::READ);
    stage_2.map(status, status, STATUS_BYTES as u64, flags, &mut tables).map_err(exhausted)?;
    for index in 0..machine.cpu_count() {
        stage_2.add_cpu(index, &mut tables).map_err(exhausted)?;
        let (Some(cpu), Some(root)) = (machine.cpu(index), stage_2.root_of(index)) else {
            return Err(Outcome::Invalid);
        };
        cpu.translation.store(root, Relaxed);
    }
    manager.stage_2[ROOT as usize] = Some(stage_2);
    smmu::prepare(machine, system, manager)?;
    let interrupts = &Shared::of(ROOT).interrupts;
    for number in 32..machine.controller.interrupt_end {
        interrupts.insert(number);
    }
    for grant in system.interrupts.iter().filter(|grant| grant.is_doorbell()) {
        DOORBELLS.insert(grant.number);
    }
    // In Linux all CPUs are on.
    let status = machine.status();
    for cpu in &status.cpus {
        cpu.set_state(ROOT, CpuPower::On);
    }
    status.initialize(machine.header.cpus());
    publish_stores();
    Ok(())
}

/// Checks that this CPU is the one in the header, and that it has the address bits of the one that prepared the
/// launch: the driver chooses one with the fewest.
pub(crate) fn check_cpu(machine: &Machine, cpu: &Cpu) -> Result<(), Outcome> {
    const AFFINITY: u64 = 0xff_00ff_ffff;
    let index = cpu.index.load(Relaxed) as usize;
    let own = read_register!("mpidr_el1") & AFFINITY;
    if machine.header.cpus().get(index) != Some(&own) {
        return Err(Outcome::Invalid);
    }
    #[cfg(feature = "gicv2")]
    gic::check_cpu(machine, index)?;
    if address_bits()? < machine.address_bits { Err(Outcome::Unsuitable) } else { Ok(()) }
}

/// Makes Linux on this CPU the root.
pub(crate) fn begin(machine: &'static Machine, cpu: &Cpu) {
    gic::set_up_management(machine, cpu);
    guest::configure_traps(machine, cpu, ROOT);
}

/// The CPUs that want to leave, and the decision.
static LEAVING: AtomicU64 = AtomicU64::new(0);

fn leaving() -> Leaving {
    Leaving(LEAVING.load(SeqCst))
}

fn step_leaving(step: impl Fn(Leaving) -> Option<Leaving>) -> bool {
    let step = |word| step(Leaving(word)).map(|leaving| leaving.0);
    LEAVING.fetch_update(SeqCst, SeqCst, step).is_ok()
}

/// Returns whether CPUs that are off turn off, because the others leave.
pub(crate) fn is_closing() -> bool {
    leaving().is_closed()
}

/// Refuses to leave, after a fault of the CPU that decides.
pub(crate) fn abandon_leaving(cpu: &Cpu) {
    if cpu.closing.swap(0, SeqCst) != 0 {
        step_leaving(|leaving| Some(leaving.decide(false)));
    }
}

/// Returns EL2 to Linux, on all CPUs of the root or on none: each calls this and waits for the others. Active
/// interrupts stay active: the controller is not virtualised, so Linux ends them itself.
pub(crate) fn leave(context: &Context<'_>, registers: &mut Registers) -> Result<(), Outcome> {
    let (machine, index) = (context.machine, context.index);
    // Linux's stub is gone with the kernel that was started first.
    if !machine.status().has_no_cells() || machine.status().is_restarted() {
        return Err(Outcome::WrongState);
    }
    if !step_leaving(|leaving| leaving.arrive(index)) {
        return Err(Outcome::Busy);
    }
    let next = || {
        let cpus = machine.status().cpus[..machine.cpu_count()].iter();
        leaving().next(index, cpus.map(CpuStatus::cpu_state))
    };
    loop {
        let limit = u64::from(machine.header.rendezvous_microseconds);
        let waited = wait_until(limit, &mut || next() != LeavingStep::Wait);
        match next() {
            LeavingStep::Leave => break,
            LeavingStep::Refused => return Err(Outcome::TimedOut),
            LeavingStep::Close if step_leaving(Leaving::close) => close(context),
            // If it is too late, the CPU that closed decides: its own waits are bounded.
            LeavingStep::Wait if !waited && step_leaving(|leaving| leaving.withdraw(index)) => {
                return Err(Outcome::TimedOut);
            }
            LeavingStep::Close | LeavingStep::Wait => {}
        }
    }
    let cpu = context.cpu;
    let _ = machine.status().cpus[index].step(&CpuState::leave);
    gic::restore_management(machine, cpu);
    write_register!("vttbr_el2", 0);
    write_register!("hcr_el2", cpu.linux_hypervisor_control.load(Relaxed));
    features::restore(cpu);
    registers.set(0, Outcome::Success as i64 as u64);
    let control = cpu.linux_system_control.load(Relaxed);
    // SAFETY: the registers are those of the current exit; this stack is not used any more.
    unsafe { leave_to_linux(registers, control, cpu.linux_vectors.load(Relaxed)) }
}

/// Has the firmware turn off the CPUs that are off, and decides.
fn close(context: &Context<'_>) {
    let machine = context.machine;
    context.cpu.closing.store(1, SeqCst);
    // All CPUs of the root have arrived, so no cell can be created any more.
    let leaves = machine.status().has_no_cells()
        && (0..machine.cpu_count())
            .all(|index| leaving().has_arrived(index) || is_off(machine, index))
        && smmu::disable();
    step_leaving(|leaving| Some(leaving.decide(leaves)));
    context.cpu.closing.store(0, SeqCst);
}

fn is_off(machine: &Machine, index: usize) -> bool {
    let Some(affinity) = machine.header.cpus().get(index) else { return false };
    gic::kick(machine, index);
    let gone = || machine.status().cpus[index].cpu_state().power == CpuPower::Gone;
    wait_until(POWER_OFF_MICROSECONDS, &mut || gone() && crate::smc::is_turned_off(*affinity))
}
