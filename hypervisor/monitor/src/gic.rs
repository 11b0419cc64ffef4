// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's own use of the interrupt controller, a GICv3 (`gicv2.rs` has that of a GICv2): finding the redistributors, the management
//! interrupt, and resetting a CPU's interface for its next owner. Section numbers are those of the GIC
//! architecture specification (Arm IHI 0069).

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_core::bus::{Bus, Width};
use rampart_hypervisor_core::format::Platform;
use rampart_hypervisor_core::gic::{
    self, LAST_SPI, ORDINARY_PRIORITY, is_extended_private_enabled, is_extended_shared_enabled,
    keep_routes, lowest_mask, sgi_to,
};
use rampart_hypervisor_core::interface::{MAXIMUM_CPUS, Outcome, ROOT};
use rampart_hypervisor_core::psci::Caller;

use rampart_hypervisor_fast_path::{Controller, Devices};

use crate::cpu::Cpu;
use crate::machine::Machine;
use crate::manager::Shared;
use crate::registers::{
    hypervisor_control as hcr, instruction, read_register, synchronise, wait_until, write_register,
};

const GICD_CTLR: u64 = 0x0000;
const GICD_TYPER: u64 = 0x0004;
const GICD_IGROUPR: u64 = 0x0080;
const GICD_ISENABLER: u64 = 0x0100;
const GICD_ICENABLER: u64 = 0x0180;
const GICD_ISPENDR: u64 = 0x0200;
const GICD_ICPENDR: u64 = 0x0280;
const GICD_ICACTIVER: u64 = 0x0380;
const GICD_IPRIORITYR: u64 = 0x0400;
/// GICD_CTLR.DS: one security state; EnableGrp0 and EnableGrp1 then (12.9.4).
const ONE_SECURITY_STATE: u64 = 1 << 6;
const ENABLE_BOTH_GROUPS: u64 = 0b11;
const GICR_TYPER: u64 = 0x0008;
const GICR_ICFGR1: u64 = 0x0c04;
/// The redistributor's second frame has the same registers at the same offsets.
const PRIVATE_FRAME: u64 = 0x1_0000;
/// Timeout for a redistributor to disable interrupts.
const DISABLE_MICROSECONDS: u64 = 100;
/// ICC_CTLR_EL1 (12.2.6): EOImode.
const END_DROPS_PRIORITY_ONLY: u64 = 1 << 1;

/// ICH_HCR_EL2.TC (12.4.7): the registers common to both groups of interrupts trap.
const TRAP_COMMON: u64 = 1 << 10;
/// TALL0: the registers of group 0 trap. With two security states they would trap to the firmware at EL3,
/// which may stop the machine (SCR_EL3.FIQ). With one, HCR_EL2.FMO makes them virtual registers, in which a cell would
/// leave data for the next one.
const TRAP_GROUP_0: u64 = 1 << 11;

/// ICC_RPR_EL1 (12.2.21): 0xff while no interrupt is active.
fn running_priority() -> u64 {
    read_register!("s3_0_c12_c11_3")
}

fn read(address: u64) -> u64 {
    Devices.read(address, Width::Word)
}

fn write(address: u64, value: u64) {
    Devices.write(address, Width::Word, value);
}

/// The properties of the controller, read at the launch.
#[derive(Debug, Clone)]
pub(crate) struct ControllerFacts {
    /// One more than the largest interrupt number of the distributor.
    pub(crate) interrupt_end: u32,
    /// Whether the management interrupt is in group 0, an FIQ that no guest can mask: only if the
    /// distributor has one security state.
    pub(crate) unmaskable: bool,
    /// The range of all GICR frames.
    all_redistributors: Range<u64>,
    /// GICR of each CPU, by its index.
    redistributors: [u64; MAXIMUM_CPUS],
    /// Size of the frames of one CPU, in bytes.
    redistributor_bytes: u64,
    /// The minimum of a guest's ICC_PMR_EL1, so that the management interrupt is not masked.
    lowest_mask: u8,
}

impl ControllerFacts {
    /// Returns the number of the management interrupt: one that Linux does not use, and if the hypervisor owns
    /// group 0, one of those reserved for firmware.
    pub(crate) fn management(&self) -> u32 {
        if self.unmaskable { 15 } else { 7 }
    }

    /// Returns its bit in registers with one bit per interrupt.
    fn management_bit(&self) -> u64 {
        1 << self.management()
    }
}

/// Linux's settings of the management interrupt.
#[derive(Debug)]
pub(crate) struct LinuxSettings {
    /// Its enable bit.
    enabled: AtomicU64,
    /// Its group bit.
    group: AtomicU64,
    priority: AtomicU64,
}

/// Reads the properties of the controller, whose registers must be mapped.
pub(crate) fn find(platform: &Platform, cpus: &[u64]) -> Result<ControllerFacts, Outcome> {
    // GIC by system registers (ID_AA64PFR0_EL1.GIC, Arm ARM D24.2.191).
    if platform.version != 3 || read_register!("id_aa64pfr0_el1") >> 24 & 0xf == 0 {
        return Err(Outcome::Unsuitable);
    }
    let typer = read(platform.distributor + GICD_TYPER);
    let mut unsuitable = is_extended_shared_enabled(platform.distributor, typer, &Devices);
    let unmaskable = read(platform.distributor + GICD_CTLR) & ONE_SECURITY_STATE != 0;
    let mut found = ControllerFacts {
        all_redistributors: platform.cpu_frames..platform.cpu_frames + platform.cpu_frame_bytes,
        redistributors: [0; MAXIMUM_CPUS],
        redistributor_bytes: 2 * PRIVATE_FRAME,
        interrupt_end: 32 * (typer as u32 & 0x1f) + 32,
        unmaskable,
        lowest_mask: lowest_mask(unmaskable || is_mask_shifted()),
    };
    let mut at = platform.cpu_frames;
    while at + 2 * PRIVATE_FRAME <= found.all_redistributors.end {
        let typer = Devices.read(at + GICR_TYPER, Width::Double);
        // VLPIS: two frames more (12.10.26).
        let bytes = if typer & 1 << 1 != 0 { 4 } else { 2 } * PRIVATE_FRAME;
        found.redistributor_bytes = bytes;
        let affinity = typer >> 32;
        let affinity = (affinity & 0xff00_0000) << 8 | affinity & 0xff_ffff;
        if let Some(index) = cpus.iter().position(|cpu| *cpu == affinity)
            && let Some(frame) = found.redistributors.get_mut(index)
        {
            *frame = at;
            unsuitable |= is_extended_private_enabled(at + PRIVATE_FRAME, typer, &Devices);
        }
        // Last.
        if typer & 1 << 4 != 0 {
            break;
        }
        at += bytes;
    }
    unsuitable |= found.redistributors[..cpus.len()].contains(&0);
    if unsuitable { Err(Outcome::Unsuitable) } else { Ok(found) }
}

/// Returns the data for exits of a CPU.
pub(crate) fn of_owner(machine: &'static Machine, index: usize) -> Controller {
    let (facts, affinities) = (&machine.controller, machine.header.cpus());
    Controller {
        redistributor: facts.redistributors[index],
        all_redistributors: facts.all_redistributors.clone(),
        redistributors: &facts.redistributors[..affinities.len()],
        redistributor_bytes: facts.redistributor_bytes,
        affinities,
        affinity: affinities[index],
        lowest_mask: facts.lowest_mask,
    }
}

/// Configures the traps of the CPU interface, in ICH_HCR_EL2: registers that send, mask and deactivate interrupts
/// trap, and those of group 0; the others do not.
pub(crate) fn configure_traps() {
    write_register!("s3_4_c12_c11_0", TRAP_COMMON | TRAP_GROUP_0);
}

/// Returns whether ICC_PMR_EL1 has the non-secure view of priorities, with two security states. Only then
/// the lowest implemented bit is shifted out and reads as 0 (IHI 0069, 4.8.1). All interrupts are masked
/// here, so changing the mask lets none through.
fn is_mask_shifted() -> bool {
    let mask = read_register!("s3_0_c4_c6_0");
    // ICC_CTLR_EL1.PRIbits (12.2.6), one less than there are.
    let priority_bits = (read_register!("s3_0_c12_c12_4") >> 8 & 7) + 1;
    write_register!("s3_0_c4_c6_0", 1_u64 << (8 - priority_bits));
    synchronise();
    let shifted = read_register!("s3_0_c4_c6_0") == 0;
    write_register!("s3_0_c4_c6_0", mask);
    synchronise();
    shifted
}

fn private_frame(machine: &Machine, cpu: &Cpu) -> u64 {
    machine.controller.redistributors[cpu.index.load(Relaxed) as usize] + PRIVATE_FRAME
}

/// Sets up this CPU's management interrupt, with a higher priority than any of a cell (4.8). Saves Linux's
/// settings for [`restore_management`].
pub(crate) fn set_up_management(machine: &Machine, cpu: &Cpu) {
    let frame = private_frame(machine, cpu);
    let bit = machine.controller.management_bit();
    let priority = frame + GICD_IPRIORITYR + u64::from(machine.controller.management());
    let saved = &cpu.linux_interrupt;
    saved.enabled.store(read(frame + GICD_ISENABLER), Relaxed);
    saved.group.store(read(frame + GICD_IGROUPR) & bit, Relaxed);
    saved.priority.store(Devices.read(priority, Width::Byte), Relaxed);
    write(frame + GICD_ICENABLER, bit);
    write(frame + GICD_ICPENDR, bit);
    Devices.write(priority, Width::Byte, 0);
    if machine.controller.unmaskable {
        write(frame + GICD_IGROUPR, read(frame + GICD_IGROUPR) & !bit);
        let control = machine.distributor + GICD_CTLR;
        write(control, read(control) | ENABLE_BOTH_GROUPS);
        // ICC_BPR0_EL1 (12.2.4): the interrupt also preempts an interrupt of the cell. There are no other
        // interrupts of group 0, so Linux's value is not saved.
        write_register!("s3_0_c12_c8_3", 0);
        // ICC_IGRPEN0_EL1 (12.2.15).
        write_register!("s3_0_c12_c12_6", 1);
    }
    write(frame + GICD_ISENABLER, bit);
    synchronise();
}

/// Restores Linux's settings of the management interrupt.
pub(crate) fn restore_management(machine: &Machine, cpu: &Cpu) {
    let frame = private_frame(machine, cpu);
    let bit = machine.controller.management_bit();
    let saved = &cpu.linux_interrupt;
    write(frame + GICD_ICENABLER, bit);
    write(frame + GICD_ICPENDR, bit);
    if machine.controller.unmaskable {
        write_register!("s3_0_c12_c12_6", 0);
    }
    let group = read(frame + GICD_IGROUPR) & !bit;
    write(frame + GICD_IGROUPR, group | saved.group.load(Relaxed));
    let priority = frame + GICD_IPRIORITYR + u64::from(machine.controller.management());
    Devices.write(priority, Width::Byte, saved.priority.load(Relaxed));
    write(frame + GICD_ISENABLER, saved.enabled.load(Relaxed) & bit);
    // ICH_HCR_EL2, as set by Linux at its start (arch/arm64/kernel/head.S, el2_setup.h).
    write_register!("s3_4_c12_c11_0", 0);
    synchronise();
}

/// Makes another CPU enter EL2, or wakes it there: at once if the interrupt is unmaskable, otherwise with its
/// next instruction, because its root table is cleared.
pub(crate) fn kick(machine: &Machine, index: usize) {
    let Some(mpidr) = machine.header.cpus().get(index) else { return };
    let value = sgi_to(*mpidr, machine.controller.management().into());
    // The order must be visible before the interrupt.
    instruction!("dsb ish");
    // ICC_SGI0R_EL1 or ICC_SGI1R_EL1 (12.2.22).
    if machine.controller.unmaskable {
        write_register!("s3_0_c12_c11_7", value);
    } else {
        write_register!("s3_0_c12_c11_5", value);
    }
    synchronise();
    // A masked interrupt does not end a WFE (Arm ARM D1.6.1), but an event does.
    instruction!("sev");
}

/// Clears the active priorities: ICC_AP1Rn_EL1 (12.2.2), whose number follows from ICC_CTLR_EL1.PRIbits.
fn clear_active_priorities(machine: &Machine) {
    let priority_bits = (read_register!("s3_0_c12_c12_4") >> 8 & 7) + 1;
    write_register!("s3_0_c12_c9_0", 0);
    if priority_bits >= 6 {
        write_register!("s3_0_c12_c9_1", 0);
    }
    if priority_bits >= 7 {
        write_register!("s3_0_c12_c9_2", 0);
        write_register!("s3_0_c12_c9_3", 0);
    }
    synchronise();
    // QEMU 7.2 ignores these writes if there is an EL3. Each end of an interrupt (ICC_EOIR1_EL1, 12.2.10)
    // drops one priority; there are at most 128.
    let mut left = 128;
    while left > 0 && running_priority() != 0xff {
        write_register!("s3_0_c12_c12_1", u64::from(machine.controller.management()));
        synchronise();
        left -= 1;
    }
}

/// Sleeps for a cell until one of its interrupts or the management interrupt is pending. The CPU interface
/// is enabled meanwhile, even if the cell has disabled it. The interrupt stays pending.
pub(crate) fn sleep(machine: &Machine, cpu: &Cpu) {
    // The cell handles an interrupt that the management interrupt does not preempt: with ICC_BPR1_EL1 = 7
    // and two security states all priorities compare equal (4.8.3). A WFI may end at once (Arm ARM D1.6.2),
    // and the CPU is then taken by clearing its root table.
    if running_priority() < machine.controller.lowest_mask.into() {
        return;
    }
    // The cell may have acknowledged a late kick, which is not signalled again while it is active.
    let active = private_frame(machine, cpu) + GICD_ICACTIVER;
    write(active, machine.controller.management_bit());
    let control = read_register!("hcr_el2");
    // ICC_IGRPEN1_EL1 (12.2.16).
    let enabled = read_register!("s3_0_c12_c12_7");
    write_register!("s3_0_c12_c12_7", 1);
    // Only interrupts routed to EL2 end a WFI at EL2 (Arm ARM D1.6.2). They are masked, so none is taken.
    write_register!("hcr_el2", control | hcr::IRQ | hcr::FIQ | hcr::SERROR);
    synchronise();
    instruction!("dsb sy", "wfi");
    write_register!("hcr_el2", control);
    write_register!("s3_0_c12_c12_7", enabled);
    synchronise();
}

/// Clears the pending management interrupt, so that the guest never takes it. Returns whether it was pending.
pub(crate) fn acknowledge_kick(machine: &Machine, cpu: &Cpu) -> bool {
    let register = private_frame(machine, cpu) + GICD_ICPENDR;
    let bit = machine.controller.management_bit();
    let pending = read(register) & bit != 0;
    write(register, bit);
    // Reading back ensures that the write has taken effect (12.1.6).
    let _ = read(register);
    instruction!("dsb sy");
    pending
}

/// Resets this CPU's private interrupts and CPU interface, so that nothing of its last owner remains.
pub(crate) fn reset_cpu(machine: &Machine, cpu: &Cpu) {
    let frame = private_frame(machine, cpu);
    let private: u64 = machine.private().0.into();
    write(frame + GICD_ICENABLER, private);
    write(frame + GICD_ICPENDR, private);
    let management = machine.controller.management_bit();
    // A cell may have acknowledged the management interrupt, which is not signalled again while it is active.
    write(frame + GICD_ICACTIVER, private | management);
    for number in (0..32).filter(|number| management >> number & 1 == 0) {
        Devices.write(frame + GICD_IPRIORITYR + number, Width::Byte, ORDINARY_PRIORITY);
    }
    // GICR_CTLR.RWP (12.11.2): the trigger of an enabled interrupt must not be changed.
    wait_until(DISABLE_MICROSECONDS, &mut || read(frame - PRIVATE_FRAME) & 1 << 3 == 0);
    // Private peripheral interrupts are level-triggered (Arm BSA, B.2).
    write(frame + GICR_ICFGR1, 0);
    // ICC_SRE_EL1 (12.2.24), ICC_IGRPEN1_EL1 (12.2.16), ICC_PMR_EL1 (12.2.19), ICC_BPR1_EL1 (12.2.5).
    write_register!("s3_0_c12_c12_5", 0b111);
    write_register!("s3_0_c12_c12_7", 0);
    write_register!("s3_0_c4_c6_0", 0xff);
    write_register!("s3_0_c12_c12_3", 0);
    let control = read_register!("s3_0_c12_c12_4");
    write_register!("s3_0_c12_c12_4", control & !END_DROPS_PRIORITY_ONLY & !1);
    clear_active_priorities(machine);
}

/// Enables or disables the wakeup of a WFI at EL2 by the management interrupt. With two security states it is
/// in group 1, which a CPU without an owner has disabled (ICC_IGRPEN1_EL1, 12.2.16). Other enabled interrupts
/// of that group can only be those of the cell's devices.
pub(crate) fn enable_wakeup(machine: &Machine, _: &Cpu, on: bool) {
    if !machine.controller.unmaskable {
        write_register!("s3_0_c12_c12_7", u64::from(on));
        synchronise();
    }
}

/// Prepares CPUs for a cell: routes the root's interrupts to another CPU of the root, and turns off LPIs, which the
/// root's tables could deliver there.
///
/// # Errors
/// [`Outcome::Unsuitable`] if a redistributor does not turn off LPIs.
pub(crate) fn isolate(machine: &Machine, cpus: impl Iterator<Item = usize>) -> Result<(), Outcome> {
    for frame in cpus.filter_map(|cpu| machine.controller.redistributors.get(cpu)) {
        // GICR_CTLR.EnableLPIs (12.11.2).
        write(frame + GICD_CTLR, read(frame + GICD_CTLR) & !1);
        if read(frame + GICD_CTLR) & 1 != 0 {
            return Err(Outcome::Unsuitable);
        }
    }
    let to = machine.root_cpu().ok_or(Outcome::Invalid)?;
    let caller = Caller { status: machine.status(), cell: ROOT };
    let numbers = 32..machine.controller.interrupt_end.min(LAST_SPI + 1);
    let root = &Shared::of(ROOT).interrupts;
    let numbers = numbers.filter(|number| root.contains(*number));
    let is_own = |affinity| caller.cpu(affinity).is_some();
    keep_routes(machine.distributor, numbers, to, is_own, &Devices);
    Ok(())
}

/// Resets a shared interrupt of the owner with the CPU of this affinity.
pub(crate) fn change_owner(machine: &Machine, number: u32, edge: bool, affinity: u64) {
    gic::change_owner(machine.distributor, number, edge, affinity, &Devices);
}

/// Sets a shared interrupt pending.
pub(crate) fn set_pending(machine: &Machine, number: u32) {
    let word = u64::from(number / 32) * 4;
    let register = machine.distributor + GICD_ISPENDR + word;
    write(register, 1 << (number % 32));
}
