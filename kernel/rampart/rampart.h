/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/rampart: launches the partitioning hypervisor under this kernel, ends it
 * again, and moves CPUs and memory between Linux and cells.
 *
 * Every call but RAMPART_STATE needs CAP_SYS_ADMIN. They take turns. What the
 * hypervisor refused comes back as EREMOTEIO with its own answer in the
 * request; all other errors are the driver's, which says in the kernel's log
 * what is missing.
 *
 * poll() tells (POLLIN) that a cell's state changed, or a cell rang the root's
 * doorbell, since the last read();
 * read() gives the count of changes, a __u64. mmap() at 0 shows struct
 * rampart_status of interface.h, for reading. At a physical address it shows
 * memory that a cell's configuration has as RAMPART_MEMORY_SHARED and
 * RAMPART_MEMORY_ROOT_READ, for writing only with RAMPART_MEMORY_ROOT_WRITE,
 * with MAP_SHARED, all of it in one region. When the cell is destroyed, an
 * access to such a mapping is SIGBUS.
 */
#ifndef _RAMPART_H
#define _RAMPART_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "interface.h"

/* The image, below /lib/firmware. */
#define RAMPART_FIRMWARE	"rampart.bin"

/* What the hypervisor answered. */
struct rampart_answer {
	__s64 outcome;			/* RAMPART_SUCCESS, RAMPART_BUSY ... */
	__u64 values[3];		/* x1 to x3 of the call */
};

/* Memory that Linux does not use, and the system's configuration. */
struct rampart_enable {
	__u64 memory;			/* physical, RAMPART_MEMORY_ALIGNMENT */
	__u64 memory_bytes;
	__u64 configuration;		/* address of struct rampart_blob_header */
	__u64 configuration_bytes;
	struct rampart_answer answer;
};

/* Of the names that a cell's maker gave to what it has. */
#define RAMPART_MAXIMUM_NAMES_BYTES	4096

/* Its CPUs leave Linux. answer.values[0] becomes its number. */
struct rampart_create {
	__u64 configuration;
	__u64 configuration_bytes;
	/* Kept with the cell and given back, never looked into. 0 bytes for none. */
	__u64 names;			/* address */
	__u64 names_bytes;		/* RAMPART_MAXIMUM_NAMES_BYTES at most */
	struct rampart_answer answer;
};

/* Memory that is loadable, as the cell sees it. */
struct rampart_load {
	__u32 cell;
	__u32 reserved;			/* 0 */
	__u64 guest;
	__u64 data;			/* address */
	__u64 bytes;
	struct rampart_answer answer;
};

struct rampart_cell {
	__u32 cell;
	__u32 reserved;			/* 0 */
	struct rampart_answer answer;
};

/* What the root (RAMPART_ROOT) or a cell was given, to be copied out. */
struct rampart_configuration {
	__u32 cell;
	__u32 reserved;			/* 0 */
	__u64 configuration;		/* address of the room for it */
	__u64 configuration_bytes;	/* of the room; becomes its size. ENOSPC if too small */
	__u64 names;			/* the same for what came as names */
	__u64 names_bytes;
};

/* The root's own: index in the doorbells of the system's configuration. */
struct rampart_ring {
	__u32 index;
	__u32 reserved;			/* 0 */
	struct rampart_answer answer;
};

struct rampart_state {
	__u32 revision;			/* RAMPART_REVISION */
	__u32 enabled;
	__u64 memory;			/* the hypervisor's, 0 while not enabled */
	__u64 memory_bytes;
	__u64 cells;			/* a bit for each */
};

#define RAMPART_STATE		_IOR('R', 0xa0, struct rampart_state)
#define RAMPART_ENABLE		_IOWR('R', 0xa1, struct rampart_enable)
#define RAMPART_DISABLE		_IO('R', 0xa2)
#define RAMPART_CREATE		_IOWR('R', 0xa3, struct rampart_create)
#define RAMPART_LOAD		_IOWR('R', 0xa4, struct rampart_load)
#define RAMPART_START		_IOWR('R', 0xa5, struct rampart_cell)
#define RAMPART_STOP		_IOWR('R', 0xa6, struct rampart_cell)
/* Wiped; its CPUs come back to Linux. */
#define RAMPART_DESTROY		_IOWR('R', 0xa7, struct rampart_cell)

#define RAMPART_CONFIGURATION	_IOWR('R', 0xa8, struct rampart_configuration)
/* Makes a cell's interrupt pending. */
#define RAMPART_DOORBELL	_IOWR('R', 0xa9, struct rampart_ring)

#endif /* _RAMPART_H */
