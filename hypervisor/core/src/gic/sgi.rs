// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Software-generated interrupts (SGIs): limits a write to ICC_SGI1R_EL1 to the cell's own CPUs (Arm IHI
//! 0069, 12.2.22). ICC_SGI0R_EL1 and ICC_ASGI1R_EL1 send interrupts of group 0 or of the other security
//! state, which no cell has: writes to them send nothing.

use super::PrivateMask;

/// IRM: to all CPUs except the sender.
const TO_ALL_OTHERS: u64 = 1 << 40;

/// Calls `write` with the values of ICC_SGI1R_EL1 that send to those targets of `value` that are among
/// `cpus` (affinities). Sends nothing if the cell does not own the interrupt.
///
/// `sender` is the affinity of the sending CPU.
#[inline]
pub fn send_sgi(
    value: u64,
    sender: u64,
    cpus: impl Iterator<Item = u64>,
    private: PrivateMask,
    mut write: impl FnMut(u64),
) {
    let number = value >> 24 & 0xf;
    if private.0 >> number & 1 == 0 {
        return;
    }
    if value & TO_ALL_OTHERS != 0 {
        for cpu in cpus.filter(|cpu| *cpu != sender) {
            write(sgi_to(cpu, number));
        }
        return;
    }
    // Fields of the register: Aff3, Aff2 and Aff1, and the range of Aff0.
    const CLUSTER: u64 = 0xff << 48 | 0xff << 32 | 0xff << 16;
    const RANGE: u64 = 0xf << 44;
    let mut targets = 0;
    for cpu in cpus {
        let affinity_0 = cpu & 0xff;
        if cluster_of(cpu) == value & CLUSTER && affinity_0 >> 4 == (value & RANGE) >> 44 {
            targets |= 1 << (affinity_0 & 0xf);
        }
    }
    let targets = value & 0xffff & targets;
    if targets != 0 {
        write(value & (CLUSTER | RANGE) | number << 24 | targets);
    }
}

/// Returns the value of ICC_SGI1R_EL1 or ICC_SGI0R_EL1 that sends an interrupt to one CPU.
#[inline]
pub const fn sgi_to(cpu: u64, number: u64) -> u64 {
    let affinity_0 = cpu & 0xff;
    cluster_of(cpu) | affinity_0 >> 4 << 44 | number << 24 | 1 << (affinity_0 & 0xf)
}

/// Returns Aff3, Aff2 and Aff1 of MPIDR_EL1 in the layout of ICC_SGI1R_EL1.
#[inline]
const fn cluster_of(cpu: u64) -> u64 {
    (cpu >> 32 & 0xff) << 48 | (cpu >> 16 & 0xff) << 32 | (cpu >> 8 & 0xff) << 16
}
