// SPDX-License-Identifier: Apache-2.0 OR MIT
// From EL2, where the machine starts, to EL1, with a stub at EL2 like that of a kernel: vectors that handle
// HVC_SOFT_RESTART (Linux, Documentation/virt/kvm/arm/hyp-abi.rst).

.section .text.stub, "ax"
.balign 0x800
launcher_stub:
    .zero   0x400
    // Synchronous, from EL1: x1 the address, x2 to x4 its arguments.
    cmp     x0, #1
    b.ne    0f
    mov     x0, x2
    mov     x2, x4
    mov     x4, x1
    mov     x1, x3
    br      x4
0:  mov     x0, #-1
    eret
.balign 0x800

// Continues at EL1 with the same stack and returns to the caller; x9 to x11 are lost.
.global launcher_descend
launcher_descend:
    adrp    x9, launcher_stub
    add     x9, x9, :lo12:launcher_stub
    msr     vbar_el2, x9
    // HCR_EL2.RW: EL1 is AArch64.
    mov     x9, #0x80000000
    msr     hcr_el2, x9
    // CNTHCTL_EL2: EL1 has counter and timer.
    mov     x9, #3
    msr     cnthctl_el2, x9
    msr     cntvoff_el2, xzr
    mrs     x9, midr_el1
    msr     vpidr_el2, x9
    mrs     x9, mpidr_el1
    msr     vmpidr_el2, x9
    // SCTLR_EL1: only the RES1 bits.
    ldr     x9, =0x30d00800
    msr     sctlr_el1, x9
    mov     x9, sp
    msr     sp_el1, x9
    // EL1 with SP_EL1, everything masked.
    mov     x9, #0x3c5
    msr     spsr_el2, x9
    msr     elr_el2, x30
    isb
    eret

// The second CPU, by PSCI, with the hypervisor's base in x0: enters, and turns itself off.
.global launcher_second
launcher_second:
    mov     x19, x0
    bl      launcher_descend
    ldr     x1, [x19, #{entry_offset}]
    add     x1, x1, x19
    mov     x0, #1
    mov     x2, x19
    mov     x3, #1
    mov     x4, #{enter}
    hvc     #0
    // PSCI CPU_OFF.
    mov     x0, #0x84000000
    add     x0, x0, #2
    smc     #0
1:  wfi
    b       1b
