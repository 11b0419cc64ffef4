// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly of entry and exception vectors.

use core::arch::global_asm;
use core::mem::offset_of;

use rampart_hypervisor_core::interface::{Header, REVISION};

use rampart_hypervisor_fast_path::HANDLED_CALLEE_SAVED;

use crate::cpu::{Cpu, LINUX_BYTES, PER_CPU_BYTES, Registers};
use crate::registers::{MEMORY_ATTRIBUTES, SYSTEM_CONTROL, TRANSLATION_CONTROL};

/// A block of executable, writable normal memory: valid, AttrIndx 0, inner shareable, access flag (Arm ARM
/// D8.3.1.2).
const EARLY_BLOCK: u64 = 1 | 3 << 8 | 1 << 10;

global_asm!(
    include_str!("entry.s"),
    revision = const REVISION,
    header_bytes = const size_of::<Header>(),
    per_cpu_bytes = const PER_CPU_BYTES,
    linux_bytes = const LINUX_BYTES,
    memory_bytes_offset = const offset_of!(Header, memory_bytes),
    early_block = const EARLY_BLOCK,
    memory_attributes = const MEMORY_ATTRIBUTES,
    translation_control = const TRANSLATION_CONTROL,
    system_control = const SYSTEM_CONTROL,
);

global_asm!(
    include_str!("vectors.s"),
    registers_bytes = const size_of::<Registers>(),
    stack_top_offset = const offset_of!(Cpu, stack_top),
    minus_handled_callee_saved = const HANDLED_CALLEE_SAVED.wrapping_neg(),
);

unsafe extern "C" {
    static exception_vectors: u8;
}

/// Returns the address for VBAR_EL2 (Arm ARM D24.2.180).
pub(crate) fn address() -> u64 {
    (&raw const exception_vectors) as u64
}
