// SPDX-License-Identifier: Apache-2.0 OR MIT
// The exceptions that are taken to EL2 (Arm ARM D1.3.1, "Exception vectors").

// Two registers at a time: those that a call may change (AAPCS64, 6.1.1), and those that it keeps.
.macro x2_to_x17 access
    \access  x2, x3, [sp, #16]
    \access  x4, x5, [sp, #32]
    \access  x6, x7, [sp, #48]
    \access  x8, x9, [sp, #64]
    \access  x10, x11, [sp, #80]
    \access  x12, x13, [sp, #96]
    \access  x14, x15, [sp, #112]
    \access  x16, x17, [sp, #128]
.endm

.macro x18_to_x29 access
    \access  x18, x19, [sp, #144]
    \access  x20, x21, [sp, #160]
    \access  x22, x23, [sp, #176]
    \access  x24, x25, [sp, #192]
    \access  x26, x27, [sp, #208]
    \access  x28, x29, [sp, #224]
.endm

.macro from_lower_level kind
    .balign 0x80
    sub     sp, sp, #{registers_bytes}
    stp     x0, x1, [sp]
    x2_to_x17 stp
    x18_to_x29 stp
    stp     x30, xzr, [sp, #240]
    mov     x0, sp
    mrs     x1, tpidr_el2
    .if \kind
    mov     x2, #\kind
    b       exit_taken
    .else
    // What can be served at once is; the rest is handle_exit's.
    add     x1, x1, #{trapped_offset}
    bl      serve_exit
    cbz     w0, resume_with_kept
    b       not_only_done
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
    // With SP_EL0, which is never used here; then with SP_EL2.
    .rept 8
    from_this_level
    .endr
    // From EL1 or EL0 in AArch64: synchronous, IRQ, FIQ, SError.
    from_lower_level 0
    from_lower_level 1
    from_lower_level 2
    from_lower_level 3
    // In AArch32, which HCR_EL2.RW leaves to EL0 alone.
    from_lower_level 0
    from_lower_level 1
    from_lower_level 2
    from_lower_level 3

.section .text.vectors, "ax"
not_only_done:
    cmn     w0, #{minus_done_with_kept}
    b.eq    resume
    mov     w3, w0
    mov     x0, sp
    mrs     x1, tpidr_el2
    mov     x2, #0
exit_taken:
    bl      handle_exit
// The stack holds struct Registers and nothing else.
resume:
    x18_to_x29 ldp
resume_with_kept:
    x2_to_x17 ldp
    ldr     x18, [sp, #144]
    ldr     x30, [sp, #240]
    ldp     x0, x1, [sp]
    add     sp, sp, #{registers_bytes}
    eret
    // Nothing is fetched ahead beyond the return.
    dsb     nsh
    isb

// The hypervisor itself faulted: what it was doing is given up, its stack begins anew, and the CPU
// goes on with what handle_fault decides.
fault_taken:
    mrs     x1, tpidr_el2
    ldr     x2, [x1, #{stack_top_offset}]
    sub     sp, x2, #{registers_bytes}
    mov     x0, sp
    bl      handle_fault
    b       resume
