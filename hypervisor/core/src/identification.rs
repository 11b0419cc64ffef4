// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The identification registers of a cell (Arm ARM D24.2.56 and following): what it may use without state that
//! the hypervisor does not wipe, and without a register of EL2 that it does not set. Hidden features trap or are
//! undefined. docs/hypervisor.md, "Identification registers", is the table for readers.

/// Returns the mask of fields of four bits, given by their lowest bits.
const fn fields<const COUNT: usize>(lowest: [u32; COUNT]) -> u64 {
    let (mut mask, mut index) = (0, 0);
    while index < COUNT {
        mask |= 0xf << lowest[index];
        index += 1;
    }
    mask
}

/// The fields of ID_AA64 registers that a cell sees, by CRm and Op2; it sees no other register of these.
const CARRIED: [(u8, u8, u64); 9] = [
    // ID_AA64PFR0: EL0, EL1, FP, AdvSIMD, GIC, DIT, CSV2, CSV3.
    (4, 0, fields([0, 4, 16, 20, 24, 48, 56, 60])),
    // ID_AA64PFR1: BT, SSBS.
    (4, 1, fields([0, 4])),
    // ID_AA64DFR0: DebugVer, PMUVer, BRPs, WRPs, CTX_CMPs, DoubleLock.
    (5, 0, fields([0, 8, 12, 20, 28, 36])),
    // ID_AA64ISAR0: all but TME.
    (6, 0, !fields([24])),
    // ID_AA64ISAR1: all but XS and LS64.
    (6, 1, !fields([56, 60])),
    // ID_AA64ISAR2: RPRES, GPA3, APA3, BC, PAC_frac, CLRBHB, CSSC.
    (6, 2, fields([4, 8, 12, 20, 24, 28, 52])),
    // ID_AA64MMFR0: PARange, ASIDBits, BigEnd, BigEndEL0, the granules of stage 1.
    (7, 0, fields([0, 4, 8, 16, 20, 24, 28])),
    // ID_AA64MMFR1: HAFDBS, HPDS, PAN, SpecSEI, ETS, AFP, nTLBPA, ECBHB.
    (7, 1, fields([0, 12, 20, 24, 36, 44, 48, 60])),
    // ID_AA64MMFR2: CnP, UAO, LSM, VARange, CCIDX, ST, AT, TTL, BBM, E0PD.
    (7, 2, fields([0, 4, 8, 16, 20, 28, 32, 48, 52, 60])),
];

/// Returns what a cell reads from the register with Op0 3, Op1 0, CRn 0 and these CRm and Op2, if this is the
/// CPU's value.
#[inline(never)]
pub fn carried(crm: u8, op2: u8, real: u64) -> u64 {
    // AArch32, only for EL0.
    if crm < 4 {
        return real;
    }
    let found = CARRIED.iter().find(|(m, number, _)| (*m, *number) == (crm, op2));
    let value = real & found.map_or(0, |(.., mask)| *mask);
    // CSV2: no more than 1, because the registers of CSV2_2 trap.
    if crm == 4 && op2 == 0 && value >> 56 & 0xf > 1 {
        value & !(0xf << 56) | 1 << 56
    } else {
        value
    }
}
