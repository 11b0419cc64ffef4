/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory of a taken CPU, shared by the driver and the stub. The stub finds
 * everything relative to its own address.
 */
#ifndef _RAMPART_DETACH_X86_STUB_H
#define _RAMPART_DETACH_X86_STUB_H

/* Pages of the stub, from its base on. */
#define STUB_CODE		0x0000
#define STUB_DATA		0x1000
#define STUB_STACKS		0x2000
#define STUB_IDT		0x3000
#define STUB_EXTENDED		0x4000
#define STUB_APIC		0x5000

/* Ends of the stacks of the interrupt stack table, in the page of stacks. */
#define STUB_STACK_NMI		0x0400
#define STUB_STACK_DOUBLE_FAULT	0x0800
#define STUB_STACK_CHECK	0x0c00
#define STUB_STACK_DEBUG	0x1000

/* Offsets in the page of data. */
#define STUB_STATE		0x000
#define STUB_COMMAND		0x004
#define STUB_FRESH		0x008
#define STUB_STOP		0x00c
#define STUB_FLUSH_WANTED	0x010
#define STUB_FLUSH_DONE		0x014
#define STUB_DOORBELL		0x018
#define STUB_DESTINATION	0x01c
#define STUB_X2APIC		0x020
#define STUB_BARRIER		0x024
#define STUB_COMPONENTS		0x028
#define STUB_USER_CR3		0x030
#define STUB_IDLE_CR3		0x038
#define STUB_FS_BASE		0x040
#define STUB_GS_BASE		0x048
#define STUB_SCRATCH		0x050
#define STUB_CR2		0x058
#define STUB_SYSTEM_CALLS	0x060
#define STUB_FAULTS		0x068
#define STUB_KICKS		0x070
#define STUB_INTERRUPTS		0x078
#define STUB_CRASH_PC		0x080
#define STUB_CRASH_VECTOR	0x088
#define STUB_GDT_POINTER	0x090
#define STUB_IDT_POINTER	0x0a0
#define STUB_GDT		0x100
#define STUB_TSS		0x200
#define STUB_REGISTERS		0x300
/* The registers of the thread; the stub's stack grows down from them. */
#define STUB_FRAME		0xf00
#define STUB_FRAME_WORDS	22
#define STUB_FRAME_END		(STUB_FRAME + 8 * STUB_FRAME_WORDS)

/* Model-specific registers that the stub sets when it starts. */
#define STUB_REGISTERS_MAXIMUM	16

#define STUB_STATE_NEW		0
#define STUB_STATE_STOPPED	1
#define STUB_STATE_RUNNING	2
#define STUB_STATE_CRASHED	3

#define STUB_COMMAND_RUN	1

/* A non-maskable interrupt is Linux's kick. */
#define STUB_VECTOR_KICK	2
/* Beyond the vectors of interrupts. */
#define STUB_VECTOR_SYSTEM_CALL	256

/* Distance of the entries of exceptions. */
#define STUB_EXCEPTION_BYTES	16

#ifndef __ASSEMBLY__

#include <linux/types.h>

/* What the stub pushes. */
struct stub_frame {
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	u64 vector, error;
	u64 rip, cs, rflags, rsp, ss;
};

static inline u64 detach_pc(const struct stub_frame *frame)
{
	return frame->rip;
}

struct stub_pointer {
	u16 bytes;
	u64 address;
} __packed;

struct stub_register {
	u32 number;
	u32 reserved;
	u64 value;
};

struct stub_data {
	u32 state;
	u32 command;
	u32 fresh;
	u32 stop;
	u32 flush_wanted;
	u32 flush_done;
	u32 doorbell;
	u32 destination;
	u32 x2apic;
	u32 barrier;
	u64 components;
	u64 user_cr3;
	u64 idle_cr3;
	u64 fs_base;
	u64 gs_base;
	u64 scratch;
	u64 cr2;
	u64 system_calls;
	u64 faults;
	u64 kicks;
	u64 interrupts;
	u64 crash_pc;
	u64 crash_vector;
	struct stub_pointer gdt_pointer __aligned(16);
	struct stub_pointer idt_pointer __aligned(16);
	u64 gdt[16] __aligned(256);
	u8 tss[104] __aligned(256);
	struct stub_register registers[STUB_REGISTERS_MAXIMUM] __aligned(256);
	u8 stack[STUB_FRAME - STUB_REGISTERS - 16 * STUB_REGISTERS_MAXIMUM];
	struct stub_frame frame;
};

/* The stub's code, which is copied, and its entries. */
extern const char stub_begin[], stub_end[];
extern const char stub_entry[], stub_system_call[], stub_interrupt[], stub_exceptions[];

#endif /* __ASSEMBLY__ */

#endif /* _RAMPART_DETACH_X86_STUB_H */
