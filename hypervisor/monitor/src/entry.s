// SPDX-License-Identifier: Apache-2.0 OR MIT
// The entry of a CPU from Linux to EL2, and its return.
//
// Arm ARM: Arm Architecture Reference Manual for A-profile, DDI 0487.

// The header of interface.rs; the driver fills in the zeroed part.
.section .header, "ax"
    .ascii  "RAMPART\0"
    .word   {revision}
    .word   {header_bytes}
    .quad   image_bytes
    .quad   core_bytes
    .quad   {per_cpu_bytes}
    .quad   entry_offset
    .zero   {header_bytes} - 48

// The callee-saved registers (AAPCS64, 6.1.1), x18 and x30, in struct LinuxState of launch.rs or struct Registers.
.macro x18_to_x30 pair, one, offset
    \pair   x18, x19, [sp, #\offset]
    \pair   x20, x21, [sp, #(\offset + 16)]
    \pair   x22, x23, [sp, #(\offset + 32)]
    \pair   x24, x25, [sp, #(\offset + 48)]
    \pair   x26, x27, [sp, #(\offset + 64)]
    \pair   x28, x29, [sp, #(\offset + 80)]
    \one    x30, [sp, #(\offset + 96)]
.endm

.section .text.entry, "ax"

// From the stub of Linux (HVC_SOFT_RESTART), at EL2 with the MMU off: x0 the header's physical
// address, x1 the CPU's index, x2 the step, LAUNCH_PREPARE or LAUNCH_ENTER. x19 to x30 are Linux's.
//
// With the MMU off, loads and stores bypass the caches (Arm ARM D8.2.12); the driver has cleaned everything
// to memory. So nothing is written before the MMU is on, except the two tables below, whose lines are then
// invalidated.
.global launch_entry
launch_entry:
    adrp    x0, image_start
    mrs     x9, sctlr_el2
    mrs     x10, vbar_el2
    cbz     x2, 2f

    // Only in the first step: identity-maps its own memory in blocks of 2 MiB (D8.3.1). The final tables are
    // created with this mapping.
    adrp    x3, early_level_1
    adrp    x4, early_level_2
    lsr     x5, x0, #30
    orr     x6, x4, #3
    str     x6, [x3, x5, lsl #3]
    add     x7, x3, x5, lsl #3
    dc      ivac, x7
    ldr     x7, [x0, #{memory_bytes_offset}]
    lsr     x7, x7, #21
    ubfx    x5, x0, #21, #9
    add     x5, x4, x5, lsl #3
    // A block of normal memory, inner shareable, access flag.
    mov     x6, #{early_block}
    orr     x6, x6, x0
0:  str     x6, [x5]
    dc      ivac, x5
    add     x5, x5, #8
    add     x6, x6, #0x200000
    subs    x7, x7, #1
    b.ne    0b
    dsb     sy
    b       3f

2:  adrp    x3, final_level_1
3:  msr     ttbr0_el2, x3
    ldr     x4, ={memory_attributes}
    msr     mair_el2, x4
    ldr     x4, ={translation_control}
    mrs     x5, id_aa64mmfr0_el1
    // Field PS: the physical address bits of the CPU (D24.2.187).
    bfi     x4, x5, #16, #3
    msr     tcr_el2, x4
    isb
    tlbi    alle2
    ic      iallu
    dsb     nsh
    isb
    ldr     x4, ={system_control}
    msr     sctlr_el2, x4
    isb

    // The stack, with Linux's registers on it: struct LinuxState in launch.rs.
    ldr     x4, =core_bytes
    add     x3, x0, x4
    mov     x4, #{per_cpu_bytes}
    madd    x3, x1, x4, x3
    add     x4, x3, x4
    sub     sp, x4, #{linux_bytes}
    mrs     x4, spsr_el2
    mrs     x5, elr_el2
    mrs     x6, hcr_el2
    mrs     x7, cptr_el2
    stp     x9, x10, [sp]
    stp     x4, x5, [sp, #16]
    stp     x6, x7, [sp, #32]
    x18_to_x30 stp, str, 48
    cbz     x2, 5f

    // Applies the relocations (R_AARCH64_RELATIVE, AAELF64 5.7.17).
    adrp    x4, relocations_start
    add     x4, x4, :lo12:relocations_start
    adrp    x5, relocations_end
    add     x5, x5, :lo12:relocations_end
4:  cmp     x4, x5
    b.hs    5f
    ldr     x6, [x4], #16
    ldr     x7, [x4], #8
    add     x7, x7, x0
    str     x7, [x0, x6]
    b       4b

    // launch(base, index, step, struct LinuxState): returns the outcome for Linux in x0, and x1 = 0 if EL2 is
    // to be returned to Linux.
5:  mov     x3, sp
    bl      launch
    cbz     x1, launch_undone
    bl      launch_return_registers
    eret
    dsb     nsh
    isb

// Restores Linux's registers except x0, and empties the stack.
launch_return_registers:
    mov     x17, x30
    ldp     x4, x5, [sp, #16]
    msr     spsr_el2, x4
    msr     elr_el2, x5
    x18_to_x30 ldp, ldr, 48
    add     sp, sp, #{linux_bytes}
    br      x17

// Returns EL2 to the stub with the outcome in x0. The stack must hold only struct LinuxState.
.global launch_undone
launch_undone:
    ldp     x9, x10, [sp]
    ldp     x6, x7, [sp, #32]
    bl      launch_return_registers
    msr     hcr_el2, x6
    msr     cptr_el2, x7
    b       return_to_stub

// abandon_launch(outcome, struct LinuxState): undoes the launch from any point.
.global abandon_launch
abandon_launch:
    mov     sp, x1
    b       launch_undone

// leave_to_linux(registers, SCTLR_EL2, VBAR_EL2): returns EL2 to the stub after a hypercall. x4 to x17 are lost, and
// the stack is not used any more. HCR_EL2 and CPTR_EL2 are already restored.
.global leave_to_linux
leave_to_linux:
    mov     sp, x0
    mov     x9, x1
    mov     x10, x2
    x18_to_x30 ldp, ldr, 144
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp]

// x9: SCTLR_EL2, x10: VBAR_EL2. From here on caches are bypassed, and nothing is loaded or stored. The code
// is identity-mapped, so it continues with the MMU off.
return_to_stub:
    dsb     sy
    msr     vbar_el2, x10
    msr     sctlr_el2, x9
    isb
    tlbi    alle2
    tlbi    vmalls12e1
    dsb     nsh
    isb
    eret
    dsb     nsh
    isb
