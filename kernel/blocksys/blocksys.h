/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/blocksys: stops CPUs for a known time, with preemption and local
 * interrupts off. One owner at a time; needs CAP_SYS_RAWIO.
 *
 * All times are nanoseconds, all moments are on CLOCK_MONOTONIC.
 */
#ifndef _UAPI_BLOCKSYS_H
#define _UAPI_BLOCKSYS_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this interface; blocksys_state.version has that of the module. */
#define BLOCKSYS_VERSION	1

/* blocksys_plan.flags */
/*
 * Each pause is drawn from half to one and a half times the mean, by SplitMix64
 * from the seed. Without it all pauses are the mean.
 */
#define BLOCKSYS_RANDOM		0x1

/*
 * What to do. All CPUs are stopped at the same moments.
 *
 * BLOCKSYS_START fails with
 *   EPERM	without CAP_SYS_RAWIO
 *   EBUSY	while blocks are being made
 *   ENODEV	a CPU is offline or does not exist
 *   EINVAL	no CPU, unknown flags, or a length or count of zero
 *   ERANGE	a length, count or pause beyond the limits (see blocksys_state)
 */
struct blocksys_plan {
	__u64 length;		/* of a block */
	__u64 pause;		/* mean, from an end to the next start */
	__u64 seed;		/* of random pauses */
	__u64 cpus;		/* address of a mask, one bit a CPU */
	__u32 cpus_bytes;	/* its size */
	__u32 count;		/* how many blocks on each CPU */
	__u32 flags;
	__u32 reserved;		/* 0 */
};

/* Limits and present state. */
struct blocksys_state {
	__u32 version;		/* BLOCKSYS_VERSION of the module */
	__u32 running;		/* CPUs that blocks are still coming to */
	__u64 longest;		/* block that is accepted */
	__u64 shortest_pause;	/* mean that is accepted */
	__u32 most_blocks;	/* count that is accepted */
	__u32 share;		/* length / (length + pause) at most, percent */
	__u64 made;		/* blocks since the last start, all CPUs */
	__u64 lost;		/* records that nobody read in time */
	__u64 skipped;		/* blocks not made: CPU unplugged, or stopped */
};

/* blocksys_record.flags */
#define BLOCKSYS_CUT		0x1	/* ended early by a stop */

/* What read(2) gives, one for each block and CPU, in the order of their ends. */
struct blocksys_record {
	__u32 cpu;
	__u32 sequence;		/* from 0; the same on all CPUs of a moment */
	__u32 flags;
	__u32 reserved;
	__u64 planned;		/* moment asked for */
	__u64 start;		/* CLOCK_MONOTONIC */
	__u64 end;
	__u64 start_counter;	/* TSC, or the virtual count on arm64 */
	__u64 end_counter;
};

#define BLOCKSYS_QUERY	_IOR(0xb5, 0, struct blocksys_state)
#define BLOCKSYS_START	_IOW(0xb5, 1, struct blocksys_plan)
/*
 * Cuts the present blocks and makes no more; what was recorded can still be
 * read. Nothing happens if none were being made.
 */
#define BLOCKSYS_STOP	_IO(0xb5, 2)

#endif /* _UAPI_BLOCKSYS_H */
