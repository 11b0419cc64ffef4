/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/blocksys: stops CPUs for a known time, with preemption and local
 * interrupts off. One owner at a time; needs CAP_SYS_RAWIO.
 *
 * All lengths are in nanoseconds, all times are CLOCK_MONOTONIC.
 */
#ifndef _UAPI_BLOCKSYS_H
#define _UAPI_BLOCKSYS_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this interface; blocksys_state.version is the module's. */
#define BLOCKSYS_VERSION	1

/* blocksys_plan.flags */
/*
 * Each pause is drawn between 0.5 and 1.5 times the mean, by SplitMix64 from the
 * seed. Without this flag all pauses have the mean length.
 */
#define BLOCKSYS_RANDOM		0x1

/*
 * A series of blocks. All CPUs are stopped at the same times.
 *
 * BLOCKSYS_START fails with
 *   EPERM	without CAP_SYS_RAWIO
 *   EBUSY	while another series runs
 *   ENODEV	if a CPU is offline or does not exist
 *   EINVAL	without a CPU, with unknown flags, or with a length or count of 0
 *   ERANGE	if a length, count or pause exceeds the limits (see blocksys_state)
 */
struct blocksys_plan {
	__u64 length;		/* of a block */
	__u64 pause;		/* mean, from the end of a block to the next start */
	__u64 seed;		/* for random pauses */
	__u64 cpus;		/* address of a mask, one bit per CPU */
	__u32 cpus_bytes;	/* size of the mask */
	__u32 count;		/* blocks on each CPU */
	__u32 flags;
	__u32 reserved;		/* 0 */
};

/* Limits and current state. */
struct blocksys_state {
	__u32 version;		/* BLOCKSYS_VERSION of the module */
	__u32 running;		/* CPUs with blocks still to come */
	__u64 longest;		/* maximum length of a block */
	__u64 shortest_pause;	/* minimum mean pause */
	__u32 most_blocks;	/* maximum count */
	__u32 share;		/* maximum of length / (length + pause), percent */
	__u64 made;		/* blocks since the last start, all CPUs */
	__u64 lost;		/* records dropped because the ring was full */
	__u64 skipped;		/* blocks not made: CPU unplugged, or stopped */
};

/* blocksys_record.flags */
#define BLOCKSYS_CUT		0x1	/* ended early by a stop */

/* Returned by read(2): one for each block and CPU, in the order of their ends. */
struct blocksys_record {
	__u32 cpu;
	__u32 sequence;		/* from 0; the same for simultaneous blocks of all CPUs */
	__u32 flags;
	__u32 reserved;
	__u64 planned;		/* requested start */
	__u64 start;		/* CLOCK_MONOTONIC */
	__u64 end;
	__u64 start_counter;	/* TSC, or the virtual count on arm64 */
	__u64 end_counter;
};

#define BLOCKSYS_QUERY	_IOR(0xb5, 0, struct blocksys_state)
#define BLOCKSYS_START	_IOW(0xb5, 1, struct blocksys_plan)
/*
 * Cuts the current blocks and ends the series. Existing records can still be
 * read. Does nothing if no series runs.
 */
#define BLOCKSYS_STOP	_IO(0xb5, 2)

#endif /* _UAPI_BLOCKSYS_H */
