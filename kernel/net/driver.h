/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the driver's source files. */
#ifndef _RAMPART_NET_DRIVER_H
#define _RAMPART_NET_DRIVER_H

#include <linux/netdevice.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <asm/barrier.h>
#include <asm/byteorder.h>

#include "ring.h"

/* x0 of the hypercall that rings a doorbell (hypervisor/core/src/interface.rs). */
#define RAMPART_NET_DOORBELL	0xc6005212

/* Counts for ethtool; simultaneous updates of rings_sent can be lost. */
struct rampart_net_counts {
	u64 interrupts;
	u64 rings_received;
	u64 rings_sent;
	u64 sessions;
	u64 refused;
};

struct rampart_net {
	struct net_device *device;
	struct napi_struct napi;
	/* State, partner and own counts change in poll, under the transmit lock. */
	struct rampart_ring ring;
	/* Sender: the frames that the other side can see. */
	u64 published;
	/* Set by `watch`: poll begins a new session. */
	bool renewed;
	/* The interrupt is disabled; written by the owner of NAPI_STATE_SCHED. */
	bool masked;
	int irq;
	u32 doorbell;
	/* Runs while the other side is not connected or has not taken all frames. */
	struct delayed_work watch;
	/* Of `watch`: the other side's last progress, and how often it did not change. */
	u64 seen;
	unsigned int unchanged;
	struct rampart_net_counts counts;
};

extern const struct ethtool_ops rampart_net_ethtool;

#endif /* _RAMPART_NET_DRIVER_H */
