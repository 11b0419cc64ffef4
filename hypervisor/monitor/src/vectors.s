// SPDX-License-Identifier: Apache-2.0 OR MIT
// The exception vectors of EL2 (Arm ARM D1.3.1, "Exception vectors").

// Loads or stores pairs of registers from an offset on the stack.
.macro pairs access, offset, one, two, more:vararg
    \access  \one, \two, [sp, #\offset]
    .ifnb \more
    pairs   \access, (\offset + 16), \more
    .endif
.endm

// Caller-saved and callee-saved registers (AAPCS64, 6.1.1).
.macro x2_to_x17 access
    pairs   \access, 16, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, x16, x17
.endm
.macro x18_to_x29 access
    pairs   \access, 144, x18, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, x29
.endm

.macro from_lower_level kind
    .balign 0x80
    sub     sp, sp, #{registers_bytes}
    stp     x0, x1, [sp]
    x2_to_x17 stp
    x18_to_x29 stp
    stp     x30, xzr, [sp, #240]
    .if \kind
    mov     x2, #\kind
    b       exit_taken
    .else
    // The fast path first; handle_exit handles the other exits. The CPU's data begins with its ExitState.
    mrs     x0, tpidr_el2
    mov     x1, sp
    bl      handle_exit_fast
    cbz     w0, resume_caller_saved
    b       other_result
    .endif
.endm

.macro from_this_level
    .balign 0x80
    b       fault_taken
.endm

.section .vectors, "ax"
.balign 0x800
.global exception_vectors
exception_vectors:
    // With SP_EL0, which is never used at EL2; then with SP_EL2.
    .rept 8
    from_this_level
    .endr
    // From EL1 or EL0 in AArch64: synchronous, IRQ, FIQ, SError.
    from_lower_level 0
    from_lower_level 1
    from_lower_level 2
    from_lower_level 3
    // From an EL1 in AArch32, which with HCR_EL2.RW it cannot be in.
    from_lower_level 0
    from_lower_level 1
    from_lower_level 2
    from_lower_level 3

.section .text.vectors, "ax"
other_result:
    cmn     w0, #{minus_handled_callee_saved}
    b.eq    resume
    mov     w3, w0
    mov     x2, #0
exit_taken:
    mov     x0, sp
    mrs     x1, tpidr_el2
    bl      handle_exit
// The stack holds struct Registers and nothing else.
resume:
    x18_to_x29 ldp
resume_caller_saved:
    x2_to_x17 ldp
    ldr     x18, [sp, #144]
    ldr     x30, [sp, #240]
    ldp     x0, x1, [sp]
    add     sp, sp, #{registers_bytes}
    eret
    // No speculation beyond the return.
    dsb     nsh
    isb

// A fault of the hypervisor itself: abandons its current work, resets the stack and calls handle_fault.
fault_taken:
    mrs     x1, tpidr_el2
    ldr     x2, [x1, #{stack_top_offset}]
    sub     sp, x2, #{registers_bytes}
    mov     x0, sp
    bl      handle_fault
    b       resume
