// SPDX-License-Identifier: Apache-2.0 OR MIT
// The part of `remote.rs` that runs instructions of a test and survives their exceptions. TPIDR_EL1 has the address of
// the CPU's area. The MMU is off.

.section .text.remote, "ax"
// Entry of a CPU, also by PSCI CPU_ON: the address of its area in x0.
.global remote_entry
remote_entry:
    add     x1, x0, #{area_bytes}
    mov     sp, x1
    adrp    x1, remote_vectors
    add     x1, x1, :lo12:remote_vectors
    msr     vbar_el1, x1
    msr     tpidr_el1, x0
    isb
    bl      remote_loop

// remote_run(area): runs the code page with x0 to x7 of the area and writes the results back. An exception ends the
// code.
.global remote_run
remote_run:
    stp     x29, x30, [sp, #-96]!
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x25, x26, [sp, #64]
    stp     x27, x28, [sp, #80]
    mov     x9, sp
    str     x9, [x0, #{stack}]
    add     x17, x0, #{code_page}
    mov     x16, x0
    ldp     x0, x1, [x16, #{arguments}]
    ldp     x2, x3, [x16, #{arguments} + 16]
    ldp     x4, x5, [x16, #{arguments} + 32]
    ldp     x6, x7, [x16, #{arguments} + 48]
    blr     x17
    mrs     x16, tpidr_el1
    stp     x0, x1, [x16, #{results}]
    stp     x2, x3, [x16, #{results} + 16]
    stp     x4, x5, [x16, #{results} + 32]
    stp     x6, x7, [x16, #{results} + 48]
remote_resume:
    mrs     x16, tpidr_el1
    ldr     x9, [x16, #{stack}]
    mov     sp, x9
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #64]
    ldp     x27, x28, [sp, #80]
    ldp     x29, x30, [sp], #96
    ret

.macro remote_fault
    .balign 0x80
    b       remote_faulted
.endm
.macro remote_interrupt
    .balign 0x80
    b       remote_interrupted
.endm

.balign 0x800
remote_vectors:
.rept 4
    remote_fault
    remote_interrupt
    remote_interrupt
    remote_fault
.endr

remote_faulted:
    mrs     x16, tpidr_el1
    mrs     x9, esr_el1
    str     x9, [x16, #{syndrome}]
    mrs     x9, far_el1
    str     x9, [x16, #{fault_address}]
    mrs     x9, elr_el1
    str     x9, [x16, #{fault_location}]
    ldr     x9, [x16, #{exceptions}]
    add     x9, x9, #1
    str     x9, [x16, #{exceptions}]
    ldr     x9, [x16, #{skips}]
    cbz     x9, remote_resume
    mrs     x9, elr_el1
    add     x9, x9, #4
    msr     elr_el1, x9
    eret

// Counts the interrupt. It stays active if the test demands it; the timer is armed again or turned off.
remote_interrupted:
    stp     x0, x1, [sp, #-32]!
    stp     x2, x3, [sp, #16]
    mrs     x0, tpidr_el1
    // ICC_IAR1_EL1, or GICC_IAR.
    ldr     x3, [x0, #{interface}]
    cbnz    x3, 4f
    mrs     x1, s3_0_c12_c12_0
    b       5f
4:  ldr     w1, [x3, #0xc]
    mov     x3, x1
    and     x1, x1, #0x3ff
5:  stp     x3, x4, [sp, #-16]!
    mov     x2, #{interrupt_end}
    cmp     x1, x2
    csel    x2, x1, x2, lo
    add     x2, x0, x2, lsl #3
    ldr     x3, [x2, #{interrupts}]
    add     x3, x3, #1
    str     x3, [x2, #{interrupts}]
    cmp     x1, #27
    b.ne    1f
    ldr     x3, [x0, #{timer_ticks}]
    msr     cntv_tval_el0, x3
    cbnz    x3, 1f
    msr     cntv_ctl_el0, xzr
1:  cmp     x1, #30
    b.ne    3f
    msr     cntp_ctl_el0, xzr
3:  ldr     x3, [x0, #{stays_active}]
    cbnz    x3, 2f
    // ICC_EOIR1_EL1, or GICC_EOIR.
    ldr     x3, [x0, #{interface}]
    cbnz    x3, 6f
    msr     s3_0_c12_c12_1, x1
    b       2f
6:  ldr     x2, [sp]
    str     w2, [x3, #0x10]
2:  isb
    ldp     x3, x4, [sp], #16
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp], #32
    eret
