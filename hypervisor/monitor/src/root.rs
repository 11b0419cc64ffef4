use rampart_hypervisor_core::interface::*;
use core::sync::atomic::Ordering::SeqCst;
use crate::cpu::*; use crate::machine::*; use crate::memory::*; use crate::registers::*; use crate::log::log;
unsafe extern "C" { fn leave(r: *const Registers, sctlr: u64, vbar: u64) -> !; }
pub(crate) fn prepare(_m: &Machine) -> Result<(), Outcome> { log!("prepared"); Ok(()) }
pub(crate) fn map(_m: &Machine, _p: &mut Mapping) -> Result<(), DoesNotFit> { Ok(()) }
pub(crate) fn check_cpu(_m: &Machine, _c: &Cpu) -> Result<(), Outcome> { Ok(()) }
pub(crate) fn begin(_m: &Machine, c: &Cpu) {
    write_register!("hcr_el2", c.linux_hypervisor_control.load(SeqCst) | hypervisor_control::TRAP_SMC);
    synchronise();
}
pub(crate) fn handle(r: &mut Registers, c: &Cpu, _kind: u64) {
    let esr = read_register!("esr_el2");
    match esr >> 26 {
        0x16 if r.x[0] == Hypercall::Disable as u64 => {
            write_register!("hcr_el2", c.linux_hypervisor_control.load(SeqCst));
            r.x[0] = 0;
            unsafe { leave(r, c.linux_system_control.load(SeqCst), c.linux_vectors.load(SeqCst)) }
        }
        0x17 => {
            write_register!("elr_el2", read_register!("elr_el2") + 4);
            unsafe { core::arch::asm!("smc #0", inout("x0") r.x[0], inout("x1") r.x[1], inout("x2") r.x[2], inout("x3") r.x[3], 
               out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _) }
        }
        _ => { r.x[0] = u64::MAX; log!("exit esr {:#x}", esr); }
    }
}
