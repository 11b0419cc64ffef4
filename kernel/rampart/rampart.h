/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/rampart: launches the partitioning hypervisor under this kernel, ends it
 * again, and moves CPUs and memory between Linux and cells.
 *
 * Every call except RAMPART_STATE needs CAP_SYS_ADMIN. Calls are serialised.
 * A call that the hypervisor refuses fails with EREMOTEIO and has the
 * hypervisor's answer in the request. All other errors are the driver's, which
 * logs the reason to the kernel log.
 *
 * poll() reports POLLIN if a cell's state changed, or a cell rang the root's
 * doorbell, since the last read(). read() returns the count of changes, a __u64.
 *
 * mmap() at offset 0 maps struct rampart_status of interface.h, read-only. At
 * the offset of a physical address it maps memory that a cell's configuration
 * marks RAMPART_MEMORY_SHARED and RAMPART_MEMORY_ROOT_READ; writable only with
 * RAMPART_MEMORY_ROOT_WRITE. This needs MAP_SHARED, and the range must be in
 * one region. After the cell is destroyed, an access to the mapping raises
 * SIGBUS.
 */
#ifndef _RAMPART_H
#define _RAMPART_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "interface.h"

/* The images in /lib/firmware, for a GICv3, for one with an SMMUv3, and for a GICv2. */
#define RAMPART_FIRMWARE	"rampart.bin"
#define RAMPART_FIRMWARE_SMMU	"rampart-smmu.bin"
#define RAMPART_FIRMWARE_GICV2	"rampart-gicv2.bin"

/* The hypervisor's answer. */
struct rampart_answer {
	__s64 outcome;			/* RAMPART_SUCCESS, RAMPART_BUSY ... */
	__u64 values[3];		/* x1 to x3 of the call */
};

/* Memory for the hypervisor, not used by Linux, and the system's configuration. */
struct rampart_enable {
	__u64 memory;			/* physical, aligned to RAMPART_MEMORY_ALIGNMENT */
	__u64 memory_bytes;
	__u64 configuration;		/* address of struct rampart_blob_header */
	__u64 configuration_bytes;
	struct rampart_answer answer;
};

/*
 * Creates a cell; its CPUs go offline. answer.values[0] is its number. What follows the
 * tables of the configuration is text that nothing reads here, and that the hypervisor
 * keeps with them, see RAMPART_CONFIGURATION.
 */
struct rampart_create {
	__u64 configuration;
	__u64 configuration_bytes;
	struct rampart_answer answer;
};

/* Copies data into loadable memory of a cell that is not running. */
struct rampart_load {
	__u32 cell;
	__u32 reserved;			/* 0 */
	__u64 guest;			/* guest address in the cell */
	__u64 data;			/* address */
	__u64 bytes;
	struct rampart_answer answer;
};

struct rampart_cell {
	__u32 cell;
	__u32 reserved;			/* 0 */
	struct rampart_answer answer;
};

/* Reads the configuration of the root (RAMPART_ROOT) or of a cell, as it was created. */
struct rampart_configuration {
	__u32 cell;
	__u32 reserved;			/* 0 */
	__u64 configuration;		/* address of a buffer */
	__u64 configuration_bytes;	/* in: its size, out: size needed (ENOSPC) */
};

/* Rings a doorbell of the root: index in the system's configuration. */
struct rampart_ring {
	__u32 index;
	__u32 reserved;			/* 0 */
	struct rampart_answer answer;
};

/*
 * Creates the root's end of a network with a cell, a device of the driver rampart-net. It ends with
 * the cell. A cell has one at most.
 */
struct rampart_network {
	__u32 cell;
	__u32 doorbell;			/* of the root, by which it rings the cell: an index */
	/* Physical starts of regions: the root writes the first, the cell the second. */
	__u64 own;
	__u64 other;
	__u32 cached;			/* 0: accessed without caches */
	__u8 address[6];		/* MAC address of this end */
	__u8 reserved[6];		/* 0 */
};

/* rampart_resource.kind */
#define RAMPART_RESOURCE_CLOCK	0
#define RAMPART_RESOURCE_RESET	1
#define RAMPART_RESOURCE_POWER	2

/* A clock, reset or power domain that a node of the machine's device tree names. */
struct rampart_resource {
	__u32 kind;
	__u32 index;			/* in clocks, resets or power-domains of the node */
	__u32 shared;			/* 1: a reset that other devices have too */
	__u32 reserved;			/* 0 */
	__u64 path;			/* address of the node's path, terminated by 0 */
};

/*
 * Serves resources to a cell by SCMI until the cell ends; those of each kind have the
 * numbers from 0 on, in this order. The page is one that the cell and the root write.
 */
struct rampart_scmi {
	__u32 cell;
	__u32 doorbell;			/* of the root, by which it rings the cell: an index */
	__u64 page;			/* physical start of the region */
	__u64 resources;		/* address of an array of struct rampart_resource */
	__u32 count;
	__u32 reserved;			/* 0 */
};

struct rampart_state {
	__u32 revision;			/* RAMPART_REVISION */
	__u32 enabled;
	__u64 memory;			/* of the hypervisor; 0 while not enabled */
	__u64 memory_bytes;
	__u64 cells;			/* one bit for each cell number */
};

#define RAMPART_STATE		_IOR('R', 0xa0, struct rampart_state)
#define RAMPART_ENABLE		_IOWR('R', 0xa1, struct rampart_enable)
#define RAMPART_DISABLE		_IO('R', 0xa2)
#define RAMPART_CREATE		_IOWR('R', 0xa3, struct rampart_create)
#define RAMPART_LOAD		_IOWR('R', 0xa4, struct rampart_load)
#define RAMPART_START		_IOWR('R', 0xa5, struct rampart_cell)
#define RAMPART_STOP		_IOWR('R', 0xa6, struct rampart_cell)
/* The cell's memory is wiped and its CPUs come back online. */
#define RAMPART_DESTROY		_IOWR('R', 0xa7, struct rampart_cell)

#define RAMPART_CONFIGURATION	_IOWR('R', 0xa8, struct rampart_configuration)
/* Makes a cell's interrupt pending. */
#define RAMPART_DOORBELL	_IOWR('R', 0xa9, struct rampart_ring)
#define RAMPART_NETWORK		_IOW('R', 0xaa, struct rampart_network)
#define RAMPART_SCMI		_IOW('R', 0xab, struct rampart_scmi)

#endif /* _RAMPART_H */
