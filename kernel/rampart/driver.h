/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the driver's source files. */
#ifndef _RAMPART_DRIVER_H
#define _RAMPART_DRIVER_H

#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/types.h>

#include "rampart.h"

/* A created cell. */
struct rampart_member {
	struct kobject kobject;
	u32 number;
	/* Its CPUs, offline in Linux. */
	struct cpumask cpus;
	/* Its configuration, for its memory regions, with the text of its creator. */
	struct rampart_blob_header *blob;
	/* The root's end of a network with the cell; NULL for none. */
	struct platform_device *network;
};

/* State of one open file of the device. */
struct rampart_opening {
	struct list_head list;
	struct address_space *mapping;
	/* The last count of changes that it has read. */
	u64 seen;
};

struct rampart_driver {
	/* Guards this structure; held during hypercalls. */
	struct mutex lock;
	/*
	 * Guards members, status and openings. Taken inside lock; no user memory is accessed
	 * while it is held.
	 */
	struct mutex view;
	bool enabled;
	/* The hypervisor has started this kernel. */
	bool attached;
	/* The machine is about to suspend, hibernate or restore an image. */
	bool suspending;
	phys_addr_t memory;
	size_t memory_bytes;
	/* The only part of the hypervisor's memory that Linux can read while it runs. */
	phys_addr_t status_address;
	struct rampart_status *status;
	/* Becomes pending with each change of a cell; 0 for none. */
	u32 event_interrupt;
	/* The configuration of the launch. */
	struct rampart_blob_header *system;
	/* By CPU: its index in the header, and its affinity. */
	u32 index[NR_CPUS];
	u64 mpidr[NR_CPUS];
	struct rampart_member *members[RAMPART_MAXIMUM_CELLS];
	/* Of SCMI; readers that do not hold lock use RCU. */
	struct rampart_server __rcu *servers[RAMPART_MAXIMUM_CELLS];
	struct kobject *cells;
};

extern struct rampart_driver rampart;
extern const struct attribute_group *rampart_groups[];

/* Affinity fields of MPIDR_EL1. */
#define RAMPART_AFFINITY	0xff00ffffffULL

/* Makes a hypercall; the answer's values are x1 to x3. */
void rampart_call(u64 function, u64 first, u64 second, struct rampart_answer *answer);
/* Returns -EREMOTEIO if the hypervisor refused, otherwise 0. */
int rampart_error(const struct rampart_answer *answer);
/* Copies a configuration from user space and checks its header. */
struct rampart_blob_header *rampart_read_blob(u64 address, u64 bytes, u64 magic);
void rampart_clean(const void *start, size_t bytes);

const struct rampart_platform *rampart_platform(const struct rampart_blob_header *blob);
int rampart_attach(void);
int rampart_launch(struct rampart_enable *request, struct device *device);
int rampart_leave(void);

int rampart_cell_create(struct rampart_create *request);
/* Takes the configuration of a cell that another kernel has created; frees it after an error. */
int rampart_cell_attach(u32 number, struct rampart_blob_header *blob);
int rampart_cell_load(struct rampart_load *request);
int rampart_cell_destroy(u32 number, struct rampart_answer *answer);
bool rampart_has_cells(void);
/* Returns whether the hypervisor runs the cell now. */
bool rampart_is_running(u32 number);

int rampart_network_create(const struct rampart_network *request);
void rampart_network_end(struct rampart_member *member);
void rampart_network_release(void);
int rampart_map_bell(unsigned int *interrupt);
bool rampart_find_region(const struct rampart_blob_header *blob, u64 physical, u32 flags,
			 struct resource *found);

int rampart_scmi_begin(void);
void rampart_scmi_exit(void);
int rampart_scmi_create(const struct rampart_scmi *request);
void rampart_scmi_look(void);
void rampart_scmi_release(u32 number);
void rampart_scmi_pause(u32 number, bool paused);
void rampart_scmi_end(u32 number);

void rampart_watch_begin(u32 event_interrupt);
void rampart_watch_end(void);
unsigned int rampart_find_interrupt(u32 number);
unsigned int rampart_map_interrupt(u32 number);
int rampart_status_begin(struct device *device);
void rampart_status_end(void);
extern struct kobj_type rampart_member_type;
ssize_t rampart_status_read(struct file *file, char __user *buffer, size_t size, loff_t *offset);
__poll_t rampart_status_poll(struct file *file, poll_table *table);

const struct rampart_memory_region *rampart_blob_memory(const struct rampart_blob_header *blob);
void rampart_view_open(struct rampart_opening *opening, struct file *file);
void rampart_view_close(struct rampart_opening *opening);
void rampart_view_status(struct rampart_status *status);
void rampart_view_end(const struct rampart_blob_header *blob);
int rampart_view_map(struct file *file, struct vm_area_struct *area);
int rampart_view_configuration(struct rampart_configuration *request);

#endif /* _RAMPART_DRIVER_H */
