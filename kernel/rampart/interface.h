/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Interface between the driver, the hypervisor and programs of the root. A copy
 * of hypervisor/core/src/interface.rs and format.rs, which document each value;
 * a test compares every constant and offset. Everything is little-endian.
 */
#ifndef _RAMPART_INTERFACE_H
#define _RAMPART_INTERFACE_H

#include <linux/types.h>

/* Revision of everything in this file. */
#define RAMPART_REVISION		7

/* "RAMPART\0", "RMPSTAT\0", "RMPSYST\0", "RMPCELL\0" */
#define RAMPART_MAGIC			0x00545241504d4152ULL
#define RAMPART_STATUS_MAGIC		0x0054415453504d52ULL
#define RAMPART_SYSTEM_MAGIC		0x0054535953504d52ULL
#define RAMPART_CELL_MAGIC		0x004c4c4543504d52ULL

/* Sizes in bytes, and limits. */
#define RAMPART_MEMORY_ALIGNMENT	0x200000
#define RAMPART_PAGE_BYTES		4096
#define RAMPART_MAXIMUM_CPUS		32
#define RAMPART_MAXIMUM_CELLS		16
#define RAMPART_FAILURE_SLOTS		16
#define RAMPART_DMA_FAULT_SLOTS		16
#define RAMPART_EXIT_SLOTS		30
#define RAMPART_LOG_BYTES		8192
#define RAMPART_CONFIGURATION_COPY	0x6000	/* offset in the status pages */
#define RAMPART_STATUS_BYTES		0xe000
#define RAMPART_MAXIMUM_BLOB_BYTES	32768
#define RAMPART_NAME_BYTES		32
#define RAMPART_MAXIMUM_MEMORY_REGIONS	256
#define RAMPART_COLOURS			32
#define RAMPART_COLOUR_BLOCK_BYTES	0x20000	/* a page of each */
#define RAMPART_MAXIMUM_INTERRUPTS	512
#define RAMPART_MAXIMUM_REGISTERS	256
#define RAMPART_MAXIMUM_SMCS		32
#define RAMPART_MAXIMUM_DOORBELLS	16
#define RAMPART_MAXIMUM_STREAMS		64

/* Numbers of cells: the root, which runs Linux, and none. */
#define RAMPART_ROOT			0
#define RAMPART_NO_CELL			0xffffffff

#define RAMPART_LAUNCH_ENTER		0
#define RAMPART_LAUNCH_PREPARE		1

/*
 * The start of the image and of the hypervisor's memory, which is aligned to
 * RAMPART_MEMORY_ALIGNMENT. All offsets are in bytes from there. The memory
 * has, in this order: image and zeroed data (core_bytes), per-CPU memory, the
 * system's configuration, the status pages, free pages.
 *
 * Each CPU enters by the stub's HVC_SOFT_RESTART: to physical_base + entry,
 * with physical_base, its index in mpidrs and the step as arguments. It returns
 * after that hvc with an outcome in x0; x0 to x17 are lost. The step is
 * RAMPART_LAUNCH_PREPARE on one CPU, after which the stub is always restored,
 * and if that succeeds RAMPART_LAUNCH_ENTER on all CPUs at the same time.
 */
struct rampart_header {
	/* Set by the image. */
	__u64 magic;			/* RAMPART_MAGIC */
	__u32 revision;			/* RAMPART_REVISION of the build */
	__u32 header_bytes;		/* size of this structure */
	__u64 image_bytes;		/* of the whole file */
	__u64 core_bytes;		/* image and zeroed data, whole pages */
	__u64 per_cpu_bytes;		/* for each CPU after that, whole pages */
	__u64 entry;

	/* Set by the driver. */
	__u64 physical_base;
	__u64 memory_bytes;
	__u64 configuration;		/* offset */
	__u64 configuration_bytes;
	__u64 status;			/* offset of struct rampart_status */
	__u32 cpu_count;
	__u32 rendezvous_microseconds;	/* timeout of the rendezvous */
	__u64 mpidrs[RAMPART_MAXIMUM_CPUS];	/* affinity fields only */
};

/*
 * Function in x0 of "hvc #0", arguments from x1, by the SMC calling convention.
 * Returns an outcome in x0, results in x1 to x3. Cells may make the calls from
 * CPU_INFO on.
 */
#define RAMPART_CALL_DISABLE		0xc6005200
#define RAMPART_CALL_CELL_CREATE	0xc6005201
#define RAMPART_CALL_CELL_LOADABLE	0xc6005202
#define RAMPART_CALL_CELL_START		0xc6005203
#define RAMPART_CALL_CELL_STOP		0xc6005204
#define RAMPART_CALL_CELL_DESTROY	0xc6005205
#define RAMPART_CALL_CONFIGURATION	0xc6005206
#define RAMPART_CALL_CPU_INFO		0xc6005210
#define RAMPART_CALL_DOORBELL		0xc6005212
#define RAMPART_CALL_WATCHDOG_KICK	0xc6005213
#define RAMPART_CALL_INTERFACE		0xc6005214
/* "smc #0": rings the doorbell with the index that is added. */
#define RAMPART_DOORBELL_BY_SMC		0xc6005280

/* Outcomes in x0 after a call or the launch, as a signed 64-bit number. */
#define RAMPART_SUCCESS			0
#define RAMPART_NOT_SUPPORTED		(-1)
#define RAMPART_NOT_PERMITTED		(-2)
#define RAMPART_INVALID			(-3)
#define RAMPART_BUSY			(-4)
#define RAMPART_EXHAUSTED		(-5)
#define RAMPART_WRONG_STATE		(-6)
#define RAMPART_NO_SUCH_CELL		(-7)
#define RAMPART_TIMED_OUT		(-8)
#define RAMPART_REFUSED			(-9)
#define RAMPART_WRONG_REVISION		(-10)
#define RAMPART_CPU_IN_USE		(-11)
#define RAMPART_UNSUITABLE		(-12)
#define RAMPART_FAULTED			(-13)

/* rampart_cell_status.state */
#define RAMPART_CELL_FREE		0
#define RAMPART_CELL_CREATED		1
#define RAMPART_CELL_LOADABLE		2
#define RAMPART_CELL_RUNNING		3
#define RAMPART_CELL_STOPPED		4
#define RAMPART_CELL_FAILED		5

/* rampart_cell_status.stop_reason, rampart_failure.reason */
#define RAMPART_STOP_NONE		0
#define RAMPART_STOP_BY_ROOT		1
#define RAMPART_STOP_SYSTEM_OFF		2
#define RAMPART_STOP_SYSTEM_RESET	3
#define RAMPART_STOP_MEMORY_READ	16
#define RAMPART_STOP_MEMORY_WRITE	17
#define RAMPART_STOP_MEMORY_EXECUTE	18
#define RAMPART_STOP_TRANSLATION_TABLE	19
#define RAMPART_STOP_DEVICE_FORBIDDEN	21
#define RAMPART_STOP_SYSTEM_REGISTER	22
#define RAMPART_STOP_SET_WAY		23
#define RAMPART_STOP_EXTERNAL_ABORT	24
#define RAMPART_STOP_UNEXPECTED		25
#define RAMPART_STOP_WATCHDOG		26
#define RAMPART_STOP_UNREACHABLE	27
#define RAMPART_STOP_HYPERVISOR		28

/* rampart_cpu_status.state; the first three as PSCI AFFINITY_INFO counts them */
#define RAMPART_CPU_ON			0
#define RAMPART_CPU_OFF			1
#define RAMPART_CPU_ON_PENDING		2
#define RAMPART_CPU_STARTING		3
#define RAMPART_CPU_PARKING		4
#define RAMPART_CPU_GONE		5

/* rampart_cpu_status.exits */
#define RAMPART_EXIT_INTERRUPT		0
#define RAMPART_EXIT_MANAGEMENT		1
#define RAMPART_EXIT_ZAPPED		2
#define RAMPART_EXIT_WAIT		3
#define RAMPART_EXIT_HYPERCALL		4
#define RAMPART_EXIT_PSCI		5
#define RAMPART_EXIT_SMC_FORWARDED	6
#define RAMPART_EXIT_SMC_REFUSED	7
#define RAMPART_EXIT_SOFTWARE_INTERRUPT	8
#define RAMPART_EXIT_INTERRUPT_CONTROL	9
#define RAMPART_EXIT_SYSTEM_REGISTER	10
#define RAMPART_EXIT_SET_WAY		11
#define RAMPART_EXIT_DISTRIBUTOR	12
#define RAMPART_EXIT_REDISTRIBUTOR	13
#define RAMPART_EXIT_DEVICE_BITS	14
#define RAMPART_EXIT_DATA_ABORT		15
#define RAMPART_EXIT_INSTRUCTION_ABORT	16
#define RAMPART_EXIT_SERROR		17
#define RAMPART_EXIT_OTHER		18

/*
 * One cell. For the root: starts counts how often it was started again, changed has
 * the time, the stop reason what its last kernel called then.
 */
struct rampart_cell_status {
	__u64 condition;		/* bits 0-15 state, 16-31 stop reason, 32-63 failure */
	__u8 name[RAMPART_NAME_BYTES];	/* padded with zeros */
	__u64 cpus;			/* one bit per index in the header */
	__u64 starts;			/* since it was created */
	__u64 changed;			/* CNTPCT_EL0 of the latest change */
	__u64 kicked;			/* CNTPCT_EL0 of the latest watchdog kick */
	__u64 watchdog_ticks;		/* timeout in ticks; 0: no watchdog */
	__u64 reserved[6];
};

/* One CPU. */
struct rampart_cpu_status {
	__u64 mpidr;
	__u64 state;			/* bits 0-31 the cell, 32-63 RAMPART_CPU_... */
	__u64 exits[RAMPART_EXIT_SLOTS];	/* since the cell has the CPU */
};

/*
 * State of a failing CPU. Read sequence, the rest, and sequence again: the
 * record is consistent only if both are the wanted number plus one.
 */
struct rampart_failure {
	__u64 sequence;			/* its number plus one */
	__u64 time;			/* CNTPCT_EL0 */
	__u32 cell;
	__u32 cpu;
	__u32 reason;
	__u32 reserved;
	__u64 syndrome;			/* ESR_EL2 */
	__u64 virtual_address;		/* FAR_EL2 */
	__u64 guest_address;		/* from HPFAR_EL2 */
	__u64 program_counter;		/* ELR_EL2 */
	__u64 processor_state;		/* SPSR_EL2 */
	__u64 registers[31];
};

/* An access of a device that the SMMU refused. Read sequence as that of a failure. */
struct rampart_dma_fault {
	__u64 sequence;			/* its number plus one */
	__u64 time;			/* CNTPCT_EL0 when it was read from the SMMU */
	__u64 address;			/* 0: the event has none */
	__u32 stream;
	__u32 cell;			/* that has the stream */
	__u32 event;			/* its number in Arm IHI 0070 */
	__u32 read;			/* 1: a read */
};

/* The status pages, readable by the root. */
struct rampart_status {
	__u64 magic;			/* RAMPART_STATUS_MAGIC */
	__u32 revision;
	__u32 cpu_count;
	__u64 changes;			/* grows with each change of a state */
	__u64 failures;			/* total; n is in slot n % FAILURE_SLOTS */
	__u64 logged;			/* total bytes; n is at n % LOG_BYTES */
	/* RAMPART_REFUSAL_... and entry, if the launch refused the system's configuration. */
	__u64 refusal;
	__u64 refused_entry;
	__u64 reserved;
	struct rampart_cell_status cells[RAMPART_MAXIMUM_CELLS];
	struct rampart_cpu_status cpus[RAMPART_MAXIMUM_CPUS];
	struct rampart_failure failure[RAMPART_FAILURE_SLOTS];
	__u8 log[RAMPART_LOG_BYTES];
	__u64 dma_faults;		/* total; n is in slot n % DMA_FAULT_SLOTS */
	struct rampart_dma_fault dma_fault[RAMPART_DMA_FAULT_SLOTS];
};

/*
 * A configuration: this header, for the system a struct rampart_platform, then
 * the tables in the order of their counts.
 */
struct rampart_blob_header {
	__u64 magic;			/* RAMPART_SYSTEM_MAGIC or _CELL_MAGIC */
	__u32 revision;
	__u32 bytes;			/* of the whole blob */
	__u8 name[RAMPART_NAME_BYTES];
	__u64 entry;			/* guest address of the first CPU */
	__u64 argument;			/* its x0 */
	__u32 watchdog_milliseconds;	/* 0: none */
	__u32 cpu_count;		/* __u64, affinity of MPIDR_EL1 */
	__u32 memory_count;		/* struct rampart_memory_region */
	__u32 interrupt_count;		/* struct rampart_interrupt_grant */
	__u32 register_count;		/* struct rampart_register_grant */
	__u32 smc_count;		/* struct rampart_smc_grant */
	__u32 doorbell_count;		/* struct rampart_doorbell */
	__u32 stream_count;		/* struct rampart_stream_grant */
};

struct rampart_platform {
	__u64 distributor;
	__u64 cpu_frames;		/* GICR, or GICC of a GICv2 */
	__u64 cpu_frame_bytes;
	__u32 event_interrupt;		/* set pending on each change; 0: none */
	__u32 version;			/* of the GIC: 2 or 3 */
};

/* rampart_memory_region.flags */
#define RAMPART_MEMORY_READ		0x1	/* the cell may read */
#define RAMPART_MEMORY_WRITE		0x2	/* the cell may write */
#define RAMPART_MEMORY_EXECUTE		0x4	/* the cell may execute */
#define RAMPART_MEMORY_DEVICE		0x8	/* a device's registers */
#define RAMPART_MEMORY_SHARED		0x10
#define RAMPART_MEMORY_LOADABLE		0x20	/* the root fills it before the start */
#define RAMPART_MEMORY_ROOT_READ	0x40	/* with SHARED */
#define RAMPART_MEMORY_ROOT_WRITE	0x80	/* with SHARED; with WRITE only if UNCACHED */
#define RAMPART_MEMORY_UNCACHED		0x100	/* with SHARED */

struct rampart_memory_region {
	__u64 physical;
	__u64 guest;
	__u64 bytes;			/* of the physical range */
	__u32 flags;
	__u32 colours;			/* its pages, by their number modulo 32; 0: all */
};

/* rampart_interrupt_grant.flags */
#define RAMPART_INTERRUPT_DOORBELL	0x1

struct rampart_interrupt_grant {
	__u32 number;			/* INTID, 32 to 1019 */
	__u32 flags;
};

/* rampart_register_grant.flags */
#define RAMPART_REGISTER_WRITE_ACTS	0x1
#define RAMPART_REGISTER_SHARED_READ	0x2	/* other cells may read its readable bits too */

struct rampart_register_grant {
	__u64 address;
	__u64 readable;			/* bits */
	__u64 writable;			/* bits */
	__u32 width;			/* in bytes */
	__u32 flags;
};

struct rampart_smc_grant {
	__u32 first;
	__u32 last;
};

struct rampart_doorbell {
	__u32 interrupt;
	__u32 reserved;
};

/* Before the streams of the system. */
struct rampart_iommu {
	__u64 registers;		/* of an SMMUv3 */
	__u64 configuration_space;	/* ECAM; 0: none */
	__u64 configuration_space_bytes;
};

struct rampart_stream_grant {
	__u32 first;
	__u32 count;
	__u64 function;			/* page in the configuration space; 0: none */
};

/* In x1 after RAMPART_REFUSED: the reason. */
#define RAMPART_REFUSAL_TRUNCATED	1
#define RAMPART_REFUSAL_TOO_LONG	2
#define RAMPART_REFUSAL_WRONG_MAGIC	3
#define RAMPART_REFUSAL_WRONG_REVISION	4
#define RAMPART_REFUSAL_TOO_MANY_ENTRIES	5
#define RAMPART_REFUSAL_RESERVED_NOT_ZERO	6
#define RAMPART_REFUSAL_BAD_NAME	7
#define RAMPART_REFUSAL_NO_CPU		8
#define RAMPART_REFUSAL_CPU_TWICE	9
#define RAMPART_REFUSAL_CPU_UNKNOWN	10
#define RAMPART_REFUSAL_CPU_OWNED	11
#define RAMPART_REFUSAL_MEMORY_UNALIGNED	12
#define RAMPART_REFUSAL_MEMORY_RANGE	13
#define RAMPART_REFUSAL_MEMORY_FLAGS	14
#define RAMPART_REFUSAL_MEMORY_OVERLAPS_GUEST	15
#define RAMPART_REFUSAL_MEMORY_OVERLAPS_PHYSICAL	16
#define RAMPART_REFUSAL_MEMORY_NOT_ROOT	17
#define RAMPART_REFUSAL_MEMORY_OWNED	18
#define RAMPART_REFUSAL_MEMORY_RESERVED	19
#define RAMPART_REFUSAL_MEMORY_TWO_WRITERS	20
#define RAMPART_REFUSAL_ENTRY_OUTSIDE	21
#define RAMPART_REFUSAL_INTERRUPT_RANGE	22
#define RAMPART_REFUSAL_INTERRUPT_TWICE	23
#define RAMPART_REFUSAL_INTERRUPT_OWNED	24
#define RAMPART_REFUSAL_REGISTER_SHAPE	25
#define RAMPART_REFUSAL_REGISTER_ORDER	26
#define RAMPART_REFUSAL_REGISTER_BITS_OWNED	27
#define RAMPART_REFUSAL_REGISTER_DIFFERS	28
#define RAMPART_REFUSAL_REGISTER_LOCATION	29
#define RAMPART_REFUSAL_SMC_RANGE	30
#define RAMPART_REFUSAL_DOORBELL_RANGE	31
#define RAMPART_REFUSAL_TOO_MANY_SHARED	32
#define RAMPART_REFUSAL_PLATFORM_SHAPE	33
#define RAMPART_REFUSAL_STREAM_RANGE	34
#define RAMPART_REFUSAL_STREAM_OWNED	35
#define RAMPART_REFUSAL_SMMU_UNSUITABLE	36

#endif /* _RAMPART_INTERFACE_H */
