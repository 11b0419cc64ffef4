// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's own use of a GICv2, as `gic.rs` for a GICv3. Section numbers are those of the GIC architecture
//! specification for version 2 (Arm IHI 0048).
//!
//! Each guest has GICC mapped, except the page of GICC_DIR. A guest can turn its CPU interface off, and mask every
//! interrupt there. So the management interrupt, an ordinary software interrupt, only wakes a CPU, which then takes
//! an abort because its root table is cleared; and WFI traps.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_core::bus::{Bus, Width};
use rampart_hypervisor_core::format::{MemoryFlags, Platform};
use rampart_hypervisor_core::gic::{BEST_PRIORITY, LAST_SPI, ORDINARY_PRIORITY};
use rampart_hypervisor_core::gicv2::{self, SEND, keep_targets, send_to};
use rampart_hypervisor_core::interface::{Outcome, PAGE_BYTES, ROOT};
use rampart_hypervisor_core::stage2::{Exhausted, Stage2, attributes};

use rampart_hypervisor_fast_path::{Controller, Devices, INTERFACES};

use crate::cpu::Cpu;
use crate::machine::Machine;
use crate::manager::Shared;
use crate::registers::{
    hypervisor_control as hcr, instruction, read_register, synchronise, write_register,
};
use crate::stage2_memory::Tables;

const GICD_TYPER: u64 = 0x004;
const GICD_ISENABLER: u64 = 0x100;
const GICD_ICENABLER: u64 = 0x180;
const GICD_ISPENDR: u64 = 0x200;
const GICD_ICPENDR: u64 = 0x280;
const GICD_ICACTIVER: u64 = 0x380;
const GICD_IPRIORITYR: u64 = 0x400;
const GICD_ITARGETSR: u64 = 0x800;
/// GICD_CPENDSGIR (4.3.16): a byte for each software interrupt, with a bit for each sender.
const GICD_CPENDSGIR: u64 = 0xf10;

const GICC_CTLR: u64 = 0x00;
const GICC_PMR: u64 = 0x04;
const GICC_BPR: u64 = 0x08;
const GICC_EOIR: u64 = 0x10;
const GICC_ABPR: u64 = 0x1c;
const GICC_RPR: u64 = 0x14;
/// GICC_APR0 to 3, then GICC_NSAPR0 to 3 (4.4.16).
const GICC_APR: u64 = 0xd0;
/// GICC_CTLR (4.4.1): enables the group of all interrupts of guests. That is the only group that Linux enables: group
/// 0, or group 1 as the non-secure state sees it.
const ENABLE: u64 = 1;
/// The bits that Linux keeps as the firmware has set them: wires past the disabled interface.
const BYPASS: u64 = 0x1e0;
/// GICC_RPR while no interrupt is active.
const IDLE: u64 = 0xff;

/// A software interrupt that Linux does not use.
const MANAGEMENT: u32 = 7;
const MANAGEMENT_BIT: u64 = 1 << MANAGEMENT;

/// The properties of the controller, read at the launch.
#[derive(Debug, Clone)]
pub(crate) struct ControllerFacts {
    /// One more than the largest interrupt number of the distributor.
    pub(crate) interrupt_end: u32,
    /// Whether no guest can mask the management interrupt.
    pub(crate) unmaskable: bool,
    /// GICC.
    interface: u64,
}

impl ControllerFacts {
    /// Returns the number of the management interrupt.
    pub(crate) fn management(&self) -> u32 {
        MANAGEMENT
    }
}

/// Linux's settings.
#[derive(Debug)]
pub(crate) struct LinuxSettings {
    /// The enable bit of the management interrupt.
    enabled: AtomicU64,
    /// The priority of the management interrupt.
    priority: AtomicU64,
    /// [`BYPASS`] of GICC_CTLR.
    bypass: AtomicU64,
}

fn read(address: u64) -> u64 {
    Devices.read(address, Width::Word)
}

fn write(address: u64, value: u64) {
    Devices.write(address, Width::Word, value);
}

fn read_interface(machine: &Machine, register: u64) -> u64 {
    read(machine.controller.interface + register)
}

fn write_interface(machine: &Machine, register: u64, value: u64) {
    write(machine.controller.interface + register, value);
}

/// Enables only the CPU interface, or nothing. Waits until it has taken effect.
fn enable_interface(machine: &Machine, cpu: &Cpu, enable: u64) {
    write_interface(machine, GICC_CTLR, cpu.linux_interrupt.bypass.load(Relaxed) | enable);
    let _ = read_interface(machine, GICC_CTLR);
    instruction!("dsb sy");
}

/// Reads the properties of the controller, whose registers must be mapped.
pub(crate) fn find(platform: &Platform, _: &[u64]) -> Result<ControllerFacts, Outcome> {
    // A CPU that also has system registers for interrupts (ID_AA64PFR0_EL1.GIC, Arm ARM D24.2.191) is not supported:
    // they would have to be kept from cells.
    if platform.version != 2 || read_register!("id_aa64pfr0_el1") >> 24 & 0xf != 0 {
        return Err(Outcome::Unsuitable);
    }
    let typer = read(platform.distributor + GICD_TYPER);
    let interrupt_end = 32 * (typer as u32 & 0x1f) + 32;
    Ok(ControllerFacts { interrupt_end, unmaskable: false, interface: platform.cpu_frames })
}

/// Finds the interface of this CPU: its bit is in the targets of the private interrupts (4.3.12).
pub(crate) fn check_cpu(machine: &Machine, index: usize) -> Result<(), Outcome> {
    let targets = machine.distributor + GICD_ITARGETSR;
    let bit = (0..32).map(|number| Devices.read(targets + number, Width::Byte));
    let bit = bit.fold(0, |all, bit| all | bit) as u8;
    if INTERFACES.set(index, bit) { Ok(()) } else { Err(Outcome::Unsuitable) }
}

/// Maps GICC without GICC_DIR, for the root and for cells.
pub(crate) fn map_for_guest(
    machine: &Machine,
    stage_2: &mut Stage2,
    tables: &mut Tables<'_>,
) -> Result<(), Exhausted> {
    let interface = machine.controller.interface;
    let device = attributes(MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE);
    stage_2.map(interface, interface, PAGE_BYTES, device, tables)
}

/// Returns the data for exits of a CPU.
pub(crate) fn of_owner(machine: &'static Machine, index: usize) -> Controller {
    Controller {
        deactivation: machine.controller.interface + PAGE_BYTES,
        interface: INTERFACES.of_cpu(index),
    }
}

/// Configures the traps of the CPU interface: stage 2 has them.
pub(crate) fn configure_traps() {}

/// Sets up this CPU's management interrupt, with a higher priority than any of a cell. Saves Linux's settings.
pub(crate) fn set_up_management(machine: &Machine, cpu: &Cpu) {
    let (base, linux) = (machine.distributor, &cpu.linux_interrupt);
    let priority = base + GICD_IPRIORITYR + u64::from(MANAGEMENT);
    linux.enabled.store(read(base + GICD_ISENABLER) & MANAGEMENT_BIT, Relaxed);
    linux.priority.store(Devices.read(priority, Width::Byte), Relaxed);
    linux.bypass.store(read_interface(machine, GICC_CTLR) & BYPASS, Relaxed);
    write(base + GICD_ICENABLER, MANAGEMENT_BIT);
    acknowledge_kick(machine, cpu);
    Devices.write(priority, Width::Byte, 0);
    write(base + GICD_ISENABLER, MANAGEMENT_BIT);
    instruction!("dsb sy");
}

/// Restores Linux's settings of the management interrupt.
pub(crate) fn restore_management(machine: &Machine, cpu: &Cpu) {
    let (base, linux) = (machine.distributor, &cpu.linux_interrupt);
    write(base + GICD_ICENABLER, MANAGEMENT_BIT);
    acknowledge_kick(machine, cpu);
    let priority = linux.priority.load(Relaxed);
    Devices.write(base + GICD_IPRIORITYR + u64::from(MANAGEMENT), Width::Byte, priority);
    write(base + GICD_ISENABLER, linux.enabled.load(Relaxed));
    instruction!("dsb sy");
}

/// Makes another CPU enter EL2 with its next instruction, because its root table is cleared, or wakes it there.
pub(crate) fn kick(machine: &Machine, index: usize) {
    // The order must be visible before the interrupt.
    instruction!("dsb sy");
    write(machine.distributor + SEND, send_to(INTERFACES.of_cpu(index), MANAGEMENT));
    // A masked interrupt does not end a WFE (Arm ARM D1.6.1), but an event does.
    instruction!("dsb sy", "sev");
}

/// Sleeps for a cell until one of its interrupts or the management interrupt is pending. The CPU interface
/// is enabled meanwhile, even if the cell has disabled it. The interrupt stays pending.
pub(crate) fn sleep(machine: &Machine, cpu: &Cpu) {
    // The cell handles an interrupt that the management interrupt does not preempt: with GICC_BPR = 7 all priorities
    // compare equal. A WFI may end at once (Arm ARM D1.6.2), and the CPU is then taken by clearing its root table.
    if read_interface(machine, GICC_RPR) < BEST_PRIORITY.into() {
        return;
    }
    // The cell may have acknowledged a late kick, which is not signalled again while it is active.
    write(machine.distributor + GICD_ICACTIVER, MANAGEMENT_BIT);
    let enabled = read_interface(machine, GICC_CTLR);
    let mask = read_interface(machine, GICC_PMR);
    write_interface(machine, GICC_PMR, mask.max(BEST_PRIORITY.into()));
    enable_interface(machine, cpu, ENABLE);
    // Only interrupts routed to EL2 end a WFI at EL2 (Arm ARM D1.6.2). They are masked, so none is taken.
    let control = read_register!("hcr_el2");
    write_register!("hcr_el2", control | hcr::IRQ | hcr::FIQ | hcr::SERROR);
    synchronise();
    instruction!("dsb sy", "wfi");
    write_register!("hcr_el2", control);
    write_interface(machine, GICC_CTLR, enabled);
    write_interface(machine, GICC_PMR, mask);
    instruction!("dsb sy");
    synchronise();
}

/// Clears the pending management interrupt, so that the guest never takes it. Returns whether it was pending.
pub(crate) fn acknowledge_kick(machine: &Machine, _: &Cpu) -> bool {
    let senders = machine.distributor + GICD_CPENDSGIR + u64::from(MANAGEMENT);
    let pending = Devices.read(senders, Width::Byte) != 0;
    Devices.write(senders, Width::Byte, 0xff);
    // Reading back ensures that the write has taken effect.
    let _ = Devices.read(senders, Width::Byte);
    instruction!("dsb sy");
    pending
}

/// Resets this CPU's private interrupts and CPU interface, so that nothing of its last owner remains.
pub(crate) fn reset_cpu(machine: &Machine, cpu: &Cpu) {
    let base = machine.distributor;
    let private: u64 = machine.private().0.into();
    write(base + GICD_ICENABLER, private);
    write(base + GICD_ICPENDR, private);
    for number in (0..16).filter(|number| *number != MANAGEMENT) {
        Devices.write(base + GICD_CPENDSGIR + u64::from(number), Width::Byte, 0xff);
    }
    // A cell may have acknowledged the management interrupt, which is not signalled again while it is active.
    write(base + GICD_ICACTIVER, private | MANAGEMENT_BIT);
    for number in (0..32).filter(|number| *number != MANAGEMENT) {
        let priority = base + GICD_IPRIORITYR + u64::from(number);
        Devices.write(priority, Width::Byte, ORDINARY_PRIORITY);
    }
    enable_interface(machine, cpu, 0);
    write_interface(machine, GICC_PMR, 0xff);
    write_interface(machine, GICC_BPR, 0);
    write_interface(machine, GICC_ABPR, 0);
    for word in 0..8 {
        write_interface(machine, GICC_APR + 4 * word, 0);
    }
    // QEMU computes the running priority only at the end of an interrupt; there are at most 128 priorities.
    for _ in 0..128 {
        if read_interface(machine, GICC_RPR) == IDLE {
            break;
        }
        write_interface(machine, GICC_EOIR, MANAGEMENT.into());
    }
    instruction!("dsb sy");
}

/// Enables or disables the wakeup of a WFI at EL2 by the management interrupt. Other enabled interrupts can only be
/// those of the cell's devices.
pub(crate) fn enable_wakeup(machine: &Machine, cpu: &Cpu, on: bool) {
    enable_interface(machine, cpu, if on { ENABLE } else { 0 });
}

/// Prepares CPUs for a cell: sends the root's interrupts only to CPUs of the root.
///
/// # Errors
/// [`Outcome::Invalid`] if the root has no CPU.
pub(crate) fn isolate(machine: &Machine, _: impl Iterator<Item = usize>) -> Result<(), Outcome> {
    let own = INTERFACES.of_cell(machine.status(), ROOT);
    if own == 0 {
        return Err(Outcome::Invalid);
    }
    let root = &Shared::of(ROOT).interrupts;
    let numbers = 32..machine.controller.interrupt_end.min(LAST_SPI + 1);
    let numbers = numbers.filter(|number| root.contains(*number));
    keep_targets(machine.distributor, numbers, own, &Devices);
    Ok(())
}

/// Resets a shared interrupt of the owner with the CPU of this affinity.
pub(crate) fn change_owner(machine: &Machine, number: u32, edge: bool, affinity: u64) {
    let index = machine.header.cpus().iter().position(|cpu| *cpu == affinity);
    let target = index.map_or(0, |index| INTERFACES.of_cpu(index));
    gicv2::change_owner(machine.distributor, number, edge, target, &Devices);
}

/// Sets a shared interrupt pending.
pub(crate) fn set_pending(machine: &Machine, number: u32) {
    let word = u64::from(number / 32) * 4;
    write(machine.distributor + GICD_ISPENDR + word, 1 << (number % 32));
}
