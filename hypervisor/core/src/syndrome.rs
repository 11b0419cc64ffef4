// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes exceptions taken to EL2: ESR_EL2, HPFAR_EL2 and FAR_EL2 (Arm ARM, D19.2.37 ESR_ELx and D19.2.66
//! HPFAR_EL2).

use crate::bus::{Access, Width};
use crate::gic::ControlRegister;

/// The cause of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// The address is not mapped, or not for this kind of access.
    Translation,
    /// The same, while the cell's own tables were read.
    TableWalk,
    /// An error of the memory system, or any other cause.
    External,
}

/// One load or store of one register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Size.
    pub width: Width,
    /// The register; 31 is the zero register.
    pub register: u8,
    /// Whether a load extends the sign.
    pub signed: bool,
    /// Whether a load writes 64 bits; otherwise the upper 32 become 0.
    pub wide: bool,
    /// Whether it is a store.
    pub write: bool,
}

/// A system register, or a system instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemAccess {
    /// The system register.
    pub register: SystemRegister,
    /// The general register that it is read into or written from; 31 is the zero register.
    pub general: u8,
    /// Whether the cell reads.
    pub read: bool,
}

/// The system registers that are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemRegister {
    /// ICC_SGI1R_EL1.
    SendGroup1,
    /// ICC_SGI0R_EL1 and ICC_ASGI1R_EL1: nothing is sent.
    SendOther,
    /// A register of the CPU interface.
    Control(ControlRegister),
    /// A register for interrupts of group 0, of which no cell has any: it reads this, and ignores writes.
    Group0(u16),
    /// DC ISW, CSW, CISW.
    SetWay,
    /// The OS lock and what traps with it (MDCR_EL2.TDOSA): Op0 2, Op1 0, CRn 1.
    DebugLock,
    /// An identification register with Op0 3, Op1 0, CRn 0 and CRm 1 to 7.
    Identification {
        /// CRm.
        crm: u8,
        /// Op2.
        op2: u8,
    },
    /// Any other, with the bits of the syndrome that encode it.
    Unknown(u32),
}

/// Exception class of WFI and WFE.
pub const WAIT: u8 = 0x01;
/// Exception class of HVC with any immediate.
pub const HYPERCALL: u8 = 0x16;
/// Exception class of SMC with any immediate: the convention uses only 0 (Arm DEN 0028, 2.4).
pub const SMC: u8 = 0x17;
/// Exception class of MSR, MRS and SYS.
pub const SYSTEM: u8 = 0x18;
/// Exception class of an instruction abort of a lower exception level.
pub const INSTRUCTION_ABORT: u8 = 0x20;
/// Exception class of a data abort of a lower exception level.
pub const DATA_ABORT: u8 = 0x24;

/// Returns the exception class of ESR_EL2.
#[inline]
pub const fn class(esr: u64) -> u8 {
    (esr >> 26) as u8 & 0x3f
}

/// Returns the guest address of a stage-2 abort: its page is in HPFAR_EL2, the rest in FAR_EL2.
#[inline]
pub const fn guest_address(hpfar: u64, far: u64) -> u64 {
    // FIPA, bits 43 to 4, has bits 51 to 12 of the address.
    (hpfar >> 4 & 0xff_ffff_ffff) << 12 | far & 0xfff
}

/// Returns the size of a trapped instruction of AArch32 (ESR_EL2.IL) and the state after it: the next one of an IT
/// block (SPSR_EL2, IT, in two parts).
pub const fn skip_of_aarch32(esr: u64, state: u64) -> (u64, u64) {
    let block = state >> 8 & 0xfc | state >> 25 & 3;
    let next = if block & 7 == 0 { 0 } else { block & 0xe0 | block << 1 & 0x1f };
    let state = state & !(0xfc << 8 | 3 << 25) | (next & 0xfc) << 8 | (next & 3) << 25;
    (2 + (esr >> 24 & 2), state)
}

/// Returns whether an abort is a permission fault. Such an abort never results from a table update, and
/// HPFAR_EL2 does not hold its address (D19.2.66), unless the cell's own tables were read (S1PTW).
pub const fn is_permission_fault(esr: u64) -> bool {
    matches!(class(esr), INSTRUCTION_ABORT | DATA_ABORT) && esr & (1 << 7 | 0x3c) == 0x0c
}

/// Returns whether ESR_EL2 is that of a data abort by one load or store of one register (ISV is 1, CM and S1PTW
/// are 0) to an unmapped page (a translation fault of any level): only these can be emulated register accesses.
/// After a permission fault HPFAR_EL2 need not hold the address.
#[inline]
pub const fn is_transfer(esr: u64) -> bool {
    const DECODED: u64 = (DATA_ABORT as u64) << 26 | 1 << 24;
    esr & (0x3f << 26 | 1 << 24 | 1 << 8 | 1 << 7 | 0x3c) == DECODED | 0x04
}

/// Decodes ESR_EL2 of an access for which [`is_transfer`] is true.
#[inline]
pub const fn transfer(esr: u64) -> Transfer {
    Transfer {
        width: match esr >> 22 & 3 {
            0 => Width::Byte,
            1 => Width::Half,
            2 => Width::Word,
            _ => Width::Double,
        },
        register: (esr >> 16 & 0x1f) as u8,
        signed: esr >> 21 & 1 != 0,
        wide: esr >> 15 & 1 != 0,
        write: is_write(esr),
    }
}

/// Returns whether a data abort is of a write (WnR).
pub const fn is_write(esr: u64) -> bool {
    esr >> 6 & 1 != 0
}

/// Returns whether a data abort is of cache maintenance or address translation (CM), which transfer no data.
pub const fn is_maintenance(esr: u64) -> bool {
    esr >> 8 & 1 != 0
}

/// Returns the cause of an abort.
pub const fn abort(esr: u64) -> Abort {
    let while_walking = esr >> 7 & 1 != 0; // S1PTW
    match esr & 0x3f {
        // Address size, translation, access flag and permission faults of any level.
        0x00..=0x0f if while_walking => Abort::TableWalk,
        0x00..=0x0f => Abort::Translation,
        _ => Abort::External,
    }
}

impl Transfer {
    /// Returns the device access, or `None` if it is unaligned. `value` is that of the register, for a
    /// store.
    #[inline]
    pub const fn access(&self, address: u64, value: u64) -> Option<Access> {
        if address.trailing_zeros() < self.width as u32 {
            return None;
        }
        let write = if self.write { Some(value) } else { None };
        Some(Access { address, width: self.width, write })
    }

    /// Returns the register's new value after a load of `value`, which has no bits beyond the width.
    #[inline]
    pub const fn loaded(&self, value: u64) -> u64 {
        if !self.signed {
            return value;
        }
        let unused = 64 - 8 * self.width.bytes();
        let value = ((value << unused) as i64 >> unused) as u64;
        if self.wide { value } else { value & 0xffff_ffff }
    }
}

/// Encodes Op0, Op2, Op1, CRn and CRm as in the syndrome.
const fn named(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | crm << 1
}

/// Decodes ESR_EL2 of a trapped MSR, MRS or SYS.
#[inline]
pub const fn system(iss: u32) -> SystemAccess {
    const PMR: u32 = named(3, 0, 4, 6, 0);
    const CTLR: u32 = named(3, 0, 12, 12, 4);
    const DIR: u32 = named(3, 0, 12, 11, 1);
    const RPR: u32 = named(3, 0, 12, 11, 3);
    const IAR0: u32 = named(3, 0, 12, 8, 0);
    const HPPIR0: u32 = named(3, 0, 12, 8, 2);
    // With any Op2: ICC_EOIR0_EL1, ICC_BPR0_EL1 and ICC_AP0Rn_EL1.
    const OTHERS_OF_GROUP_0: u32 = named(3, 0, 12, 8, 0);
    const IGRPEN0: u32 = named(3, 0, 12, 12, 6);
    const SGI1R: u32 = named(3, 0, 12, 11, 5);
    const ASGI1R: u32 = named(3, 0, 12, 11, 6);
    const SGI0R: u32 = named(3, 0, 12, 11, 7);
    const ISW: u32 = named(1, 0, 7, 6, 2);
    const CSW: u32 = named(1, 0, 7, 10, 2);
    const CISW: u32 = named(1, 0, 7, 14, 2);
    let register = match iss & named(3, 7, 15, 15, 7) {
        PMR => SystemRegister::Control(ControlRegister::PriorityMask),
        CTLR => SystemRegister::Control(ControlRegister::Control),
        DIR => SystemRegister::Control(ControlRegister::Deactivate),
        RPR => SystemRegister::Control(ControlRegister::RunningPriority),
        // INTID 1023: no interrupt (IHI 0069, 2.2.1).
        IAR0 | HPPIR0 => SystemRegister::Group0(1023),
        IGRPEN0 => SystemRegister::Group0(0),
        SGI1R => SystemRegister::SendGroup1,
        ASGI1R | SGI0R => SystemRegister::SendOther,
        ISW | CSW | CISW => SystemRegister::SetWay,
        other if other & named(3, 7, 15, 15, 0) == OTHERS_OF_GROUP_0 => SystemRegister::Group0(0),
        other if other & named(3, 7, 15, 0, 0) == named(2, 0, 1, 0, 0) => SystemRegister::DebugLock,
        other if other & named(3, 7, 15, 8, 0) == named(3, 0, 0, 0, 0) && other & 0xe != 0 => {
            SystemRegister::Identification {
                crm: (other >> 1 & 7) as u8,
                op2: (other >> 17) as u8 & 7,
            }
        }
        other => SystemRegister::Unknown(other),
    };
    SystemAccess { register, general: (iss >> 5 & 0x1f) as u8, read: iss & 1 != 0 }
}
