// SPDX-License-Identifier: Apache-2.0 OR MIT
// First code of a Linux cell, in the last page of its memory. At the first start it jumps to the kernel. If the
// cell is started again without being loaded, it searches the memory for the kernel's log and copies it to the
// shared region `kernel_log.rs` reads, then turns the cell off. So the log leaves the cell only by the cell's own
// code. Runs without MMU, so all accesses are aligned; x0 to x3 are the kernel's arguments.
//
// The log (Linux, kernel/printk/printk_ringbuffer.c) is an array of `struct printk_info`, of which each has 88
// bytes and begins with the number of the record, and a ring of texts, each after a word with its identifier. The
// first identifier is minus the number of records, in 32 bits.

.equ PARAMETERS, 4032       // kernel_log.rs has the same
.equ INFO, 88
.equ GAP, 272               // words; a text has at most 2 KiB
.equ TEXTS, 64              // the texts begin here in the region, the copies of infos at INFOS
.equ INFOS, 1 << 20
.equ INFOS_END, 2 << 20

.pushsection .rodata.rampart_log_reader, "a"
.balign 8
.globl rampart_log_reader_begin
.globl rampart_log_reader_end
rampart_log_reader_begin:
    adr     x9, rampart_log_reader_begin
    add     x9, x9, #PARAMETERS
    ldr     x10, [x9]
    cbnz    x10, 1f
    mov     x10, #1
    str     x10, [x9]
    ldr     x10, [x9, #8]
    br      x10

    // The kernel's last writes may be in caches, which reads without MMU do not see.
1:  ldp     x0, x1, [x9, #16]       // start and end of the memory
    ldr     x2, [x9, #32]           // the shared region
    str     xzr, [x2]               // no log yet
    mrs     x3, ctr_el0
    ubfx    x3, x3, #16, #4
    mov     x4, #4
    lsl     x3, x4, x3
    mov     x4, x0
2:  dc      civac, x4
    add     x4, x4, x3
    cmp     x4, x1
    b.lo    2b
    dsb     sy

    // Search eight identifiers that follow each other, with at most GAP words in between.
    mov     x12, #0xfff             // bits from 20 on of an identifier
    mov     x4, x0
    mov     x8, #GAP + 1            // words since the last identifier
3:  ldr     x10, [x4]
    lsr     x11, x10, #20
    cmp     x11, x12
    b.ne    5f
    cmp     x8, #GAP
    b.ls    4f
    mov     x5, x4                  // the first identifier
    mov     x6, x10                 // the previous one
    mov     x7, #0                  // how many follow their previous one
4:  sub     x11, x10, x6
    sub     x11, x11, #1
    cmp     x11, #8                 // an empty text has an identifier, but no block
    cinc    x7, x7, lo
    mov     x6, x10
    mov     x8, #0
    cmp     x7, #8
    b.hs    6f
5:  add     x8, x8, #1
    add     x4, x4, #8
    cmp     x4, x1
    b.lo    3b
    b       14f

    // Copy the texts, until GAP words without an identifier.
6:  add     x13, x2, #TEXTS
    add     x14, x2, #INFOS
    mov     x8, #0
7:  ldr     x10, [x5], #8
    str     x10, [x13], #8
    lsr     x11, x10, #20
    cmp     x11, x12
    csinc   x8, xzr, x8, eq
    cmp     x8, #GAP
    b.hi    8f
    cmp     x5, x1
    b.hs    8f
    cmp     x13, x14
    b.lo    7b
8:  sub     x13, x13, x2
    str     x13, [x2, #8]           // end of the texts

    // Search four infos whose numbers follow each other, beginning with any but 0.
    add     x13, x2, #INFOS
    add     x14, x2, #INFOS_END
    add     x4, x0, #INFO
    sub     x15, x1, #4 * INFO
9:  ldr     x10, [x4]
    cbz     x10, 10f
    lsr     x11, x10, #24
    cbnz    x11, 10f
    ldr     x11, [x4, #8]
    lsr     x11, x11, #56           // a time below two years
    cbnz    x11, 10f
    ldr     x11, [x4, #16]
    lsr     x11, x11, #24           // level, flags and caller are not all 0
    cbz     x11, 10f
    ldr     x11, [x4, #INFO]
    sub     x11, x11, x10
    cmp     x11, #1
    b.ne    10f
    ldr     x11, [x4, #2 * INFO]
    sub     x11, x11, x10
    cmp     x11, #2
    b.ne    10f
    ldr     x11, [x4, #3 * INFO]
    sub     x11, x11, x10
    cmp     x11, #3
    b.eq    11f
10: add     x4, x4, #8
    cmp     x4, x15
    b.lo    9b
    b       13f

    // Copy three words of each, from the one before, which has the number 0 if the array is not full.
11: sub     x4, x4, #INFO
    ldr     x10, [x4]
12: ldp     x11, x16, [x4, #8]
    stp     x10, x11, [x13], #16
    str     x16, [x13], #8
    add     x4, x4, #INFO
    cmp     x4, x15
    b.hs    13f
    add     x11, x13, #24
    cmp     x11, x14
    b.hi    13f
    ldr     x10, [x4]
    cbz     x10, 13f
    lsr     x11, x10, #24
    cbz     x11, 12b
13: sub     x13, x13, x2
    str     x13, [x2, #16]          // end of the infos
    dsb     sy
    ldr     x10, [x9, #40]
    str     x10, [x2]               // the log is complete

14: dsb     sy
    ldr     w0, =0x84000008         // SYSTEM_OFF (Arm DEN 0022)
    smc     #0
    b       .
.ltorg
rampart_log_reader_end:
.popsection
