// SPDX-License-Identifier: Apache-2.0 OR MIT
// The entry of a program of a cell, at EL1 with all exceptions masked and the MMU off, and its exception vectors (Arm
// ARM D1.3.1). The first argument of `cell_exception` is the counter when the exception was taken: an exception is
// a context synchronization event, so the counter is not read earlier.

.section .entry, "ax"
.global cell_entry
cell_entry:
    b       9f
// What the loader fills in (`rampart_ring::program_header`).
.balign {header_offset}
.global cell_header
cell_header:
    .quad   {header_magic}, 0, 0
9:  // The bitwise OR of all registers except the argument is the program's second argument: 0 if no values of
    // the last owner remain.
    .irp number, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24
    orr     x1, x1, x\number
    .endr
    .irp number, 25, 26, 27, 28, 29, 30
    orr     x1, x1, x\number
    .endr
    mov     x2, sp
    orr     x20, x1, x2
    adrp    x1, bss_start
    add     x1, x1, :lo12:bss_start
    adrp    x2, bss_end
    add     x2, x2, :lo12:bss_end
0:  cmp     x1, x2
    b.hs    1f
    stp     xzr, xzr, [x1], #16
    b       0b
1:  adrp    x1, stack_top
    add     x1, x1, :lo12:stack_top
    mov     sp, x1
    adrp    x1, cell_vectors
    add     x1, x1, :lo12:cell_vectors
    msr     vbar_el1, x1
    msr     tpidr_el1, xzr
    isb
    mov     x1, x20
    bl      cell_main
2:  wfi
    b       2b

// A further CPU, with its number in x0.
.global cell_second_entry
cell_second_entry:
    adrp    x1, stack_top
    add     x1, x1, :lo12:stack_top
    add     x1, x1, x0, lsl #14
    mov     sp, x1
    adrp    x1, cell_vectors
    add     x1, x1, :lo12:cell_vectors
    msr     vbar_el1, x1
    msr     tpidr_el1, x0
    isb
    adrp    x1, cell_second
    ldr     x1, [x1, :lo12:cell_second]
    blr     x1
    b       2b

.section .text.vectors, "ax"
.balign 0x800
cell_vectors:
.rept 16
    .balign 0x80
    stp     x0, x1, [sp, #-176]!
    mrs     x0, cntvct_el0
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x30, [sp, #144]
    bl      cell_exception
    b       3f
.endr
3:  ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x30, [sp, #144]
    ldp     x0, x1, [sp], #176
    eret
