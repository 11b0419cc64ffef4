// SPDX-License-Identifier: GPL-2.0-only
/*
 * rampart-net: a network device to another cell or to the root. Frames are
 * copied through two sections of memory, each written by one side (ring.h);
 * doorbells of the hypervisor are the interrupts.
 *
 * The other side is hostile: a frame is copied once, then only the copy is
 * used; checksums are computed from the copy, none of its claims is trusted;
 * work for one interrupt is that of NAPI's budget. It can send any frame that
 * any other machine of a network can send, and it can send too many.
 */
#include <linux/arm-smccc.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/mod_devicetable.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/property.h>
#include <linux/random.h>
#include <net/checksum.h>

#include "driver.h"

#define WATCH_INTERVAL	HZ
/* The other side is gone if it makes no progress for this number of intervals. */
#define WATCH_LIMIT	5

/* Rings the other side. If it does not exist, it looks by itself when it starts. */
static void ring_other(struct rampart_net *net)
{
	struct arm_smccc_res result;

	arm_smccc_1_1_hvc(RAMPART_NET_DOORBELL, net->doorbell, &result);
	net->counts.rings_sent++;
}

static void watch_soon(struct rampart_net *net)
{
	if (!delayed_work_pending(&net->watch))
		queue_delayed_work(system_wq, &net->watch, WATCH_INTERVAL);
}

static u64 new_number(void)
{
	u64 number;

	do {
		number = get_random_u64();
	} while (!number);
	return number;
}

static bool is_connected(const struct rampart_net *net)
{
	return READ_ONCE(net->ring.state) == RAMPART_RING_CONNECTED;
}

/* Follows a change of the session. Only called by poll. */
static void follow(struct rampart_net *net)
{
	struct net_device *device = net->device;
	bool ring = false;

	netif_tx_lock(device);
	if (net->renewed) {
		net->renewed = false;
		rampart_ring_open(&net->ring, new_number());
		ring = true;
	}
	if (rampart_ring_update(&net->ring))
		ring = true;
	net->published = net->ring.written;
	if (is_connected(net)) {
		net->counts.sessions++;
		netif_wake_queue(device);
	}
	netif_tx_unlock(device);
	if (is_connected(net))
		netif_carrier_on(device);
	else
		netif_carrier_off(device);
	if (ring)
		ring_other(net);
	watch_soon(net);
}

/* Ends the session after an impossible count. Only called by poll. */
static void refuse(struct rampart_net *net)
{
	netif_tx_lock(net->device);
	rampart_ring_refuse(&net->ring);
	netif_tx_unlock(net->device);
	if (is_connected(net))
		return;
	net->counts.refused++;
	netif_carrier_off(net->device);
	watch_soon(net);
}

static void receive_frame(struct rampart_net *net)
{
	struct net_device *device = net->device;
	struct sk_buff *buffer;
	const void *frame;
	u64 bytes;

	bytes = rampart_ring_frame(&net->ring, &frame);
	if (!bytes) {
		device->stats.rx_length_errors++;
		device->stats.rx_errors++;
		return;
	}
	buffer = napi_alloc_skb(&net->napi, bytes);
	if (!buffer) {
		device->stats.rx_dropped++;
		return;
	}
	memcpy(skb_put(buffer, bytes), frame, bytes);
	/* From here on only the copy is used. */
	if (device->features & NETIF_F_RXCSUM) {
		buffer->csum = csum_partial(buffer->data + ETH_HLEN, bytes - ETH_HLEN, 0);
		buffer->ip_summed = CHECKSUM_COMPLETE;
	}
	buffer->protocol = eth_type_trans(buffer, device);
	dev_sw_netstats_rx_add(device, bytes);
	napi_gro_receive(&net->napi, buffer);
}

static int receive(struct rampart_net *net, int budget)
{
	struct rampart_ring *ring = &net->ring;
	u64 waiting = rampart_ring_waiting(ring);
	u64 old = ring->taken;
	int count;

	if (waiting > ring->slots) {
		refuse(net);
		return 0;
	}
	for (count = 0; count < budget && count < waiting; count++) {
		receive_frame(net);
		ring->taken++;
		/* A sender that waits for space continues before all are taken. */
		if (ring->taken - old < ring->slots / 4)
			continue;
		if (rampart_ring_release(ring, old))
			ring_other(net);
		old = ring->taken;
	}
	if (ring->taken != old && rampart_ring_release(ring, old))
		ring_other(net);
	return count;
}

static int poll(struct napi_struct *napi, int budget)
{
	struct rampart_net *net = container_of(napi, struct rampart_net, napi);
	struct rampart_ring *ring = &net->ring;
	int count = 0;
	bool masked;

	if (net->renewed || rampart_ring_is_changed(ring))
		follow(net);
	if (is_connected(net)) {
		u64 used = rampart_ring_used(ring);

		if (used > ring->slots)
			refuse(net);
		else if (used < ring->slots && netif_queue_stopped(net->device))
			netif_wake_queue(net->device);
	}
	if (is_connected(net) && budget)
		count = receive(net, budget);
	if (count >= budget)
		return count;
	masked = net->masked;
	net->masked = false;
	if (!napi_complete_done(napi, count)) {
		net->masked = masked;
		return count;
	}
	if (masked)
		enable_irq(net->irq);
	if (is_connected(net)) {
		rampart_ring_mark_receive(ring);
		if (rampart_ring_waiting(ring))
			napi_schedule(napi);
	}
	return count;
}

/*
 * Always handled: a line without a handler would be turned off after many rings
 * without a reason. It is disabled until poll ends, so that endless rings are
 * no endless interrupts.
 */
static irqreturn_t rung(int irq, void *data)
{
	struct rampart_net *net = data;

	net->counts.interrupts++;
	if (napi_schedule_prep(&net->napi)) {
		net->counts.rings_received++;
		disable_irq_nosync(irq);
		net->masked = true;
		__napi_schedule(&net->napi);
	}
	return IRQ_HANDLED;
}

static netdev_tx_t transmit(struct sk_buff *buffer, struct net_device *device)
{
	struct rampart_net *net = netdev_priv(device);
	struct rampart_ring *ring = &net->ring;
	unsigned int bytes = buffer->len;

	if (!is_connected(net) || bytes < RAMPART_RING_LEAST_FRAME ||
	    bytes > RAMPART_RING_MOST_FRAME || rampart_ring_used(ring) >= ring->slots) {
		device->stats.tx_dropped++;
		dev_kfree_skb_any(buffer);
		goto publish;
	}
	/* Completes a partial checksum on the way. */
	skb_copy_and_csum_dev(buffer, rampart_ring_space(ring));
	rampart_ring_append(ring, bytes);
	skb_tx_timestamp(buffer);
	dev_sw_netstats_tx_add(device, 1, bytes);
	dev_consume_skb_any(buffer);
	if (rampart_ring_used(ring) >= ring->slots) {
		netif_stop_queue(device);
		rampart_ring_mark_send(ring);
		if (rampart_ring_used(ring) < ring->slots)
			netif_start_queue(device);
	}
	watch_soon(net);
publish:
	if (ring->written != net->published &&
	    (!netdev_xmit_more() || netif_queue_stopped(device))) {
		u64 old = net->published;

		net->published = ring->written;
		if (rampart_ring_publish(ring, old))
			ring_other(net);
	}
	return NETDEV_TX_OK;
}

/*
 * Looks for another side that starts without a ring, and for one that takes no
 * frames or does not answer any more.
 */
static void watch(struct work_struct *work)
{
	struct rampart_net *net = container_of(to_delayed_work(work), struct rampart_net, watch);
	bool connected = is_connected(net);
	u64 used = connected ? rampart_ring_used(&net->ring) : 0;
	u64 now = connected ? net->ring.written - used : READ_ONCE(net->ring.partner);

	if (now != net->seen || (connected && !used) || (!connected && !now))
		net->unchanged = 0;
	else
		net->unchanged++;
	net->seen = now;
	if (net->unchanged >= WATCH_LIMIT) {
		net->unchanged = 0;
		WRITE_ONCE(net->renewed, true);
	}
	local_bh_disable();
	napi_schedule(&net->napi);
	local_bh_enable();
	if (!connected || used)
		queue_delayed_work(system_wq, &net->watch, WATCH_INTERVAL);
}

static int open(struct net_device *device)
{
	struct rampart_net *net = netdev_priv(device);
	int error;

	netif_carrier_off(device);
	net->renewed = true;
	net->masked = false;
	napi_enable(&net->napi);
	error = request_irq(net->irq, rung, IRQF_SHARED, device->name, net);
	if (error) {
		napi_disable(&net->napi);
		return error;
	}
	netif_start_queue(device);
	local_bh_disable();
	napi_schedule(&net->napi);
	local_bh_enable();
	return 0;
}

static int stop(struct net_device *device)
{
	struct rampart_net *net = netdev_priv(device);

	netif_stop_queue(device);
	/* Waits for poll, which enables the interrupt, and prevents another one. */
	napi_disable(&net->napi);
	/* A poll that used its budget does not enable it. */
	if (net->masked)
		enable_irq(net->irq);
	free_irq(net->irq, net);
	cancel_delayed_work_sync(&net->watch);
	netif_tx_lock_bh(device);
	rampart_ring_close(&net->ring);
	netif_tx_unlock_bh(device);
	netif_carrier_off(device);
	ring_other(net);
	return 0;
}

static const struct net_device_ops operations = {
	.ndo_open = open,
	.ndo_stop = stop,
	.ndo_start_xmit = transmit,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

/* Maps a section with the memory type that both sides have to use. */
static void *map(struct platform_device *parent, unsigned int index, u64 *slots)
{
	bool cached = device_property_read_bool(&parent->dev, "rampart,cached");
	struct resource *range = platform_get_resource(parent, IORESOURCE_MEM, index);

	*slots = range ? rampart_ring_slots(resource_size(range)) : 0;
	if (!*slots) {
		dev_err(&parent->dev, "section %u is missing or too small\n", index);
		return ERR_PTR(-EINVAL);
	}
	return devm_memremap(&parent->dev, range->start, resource_size(range),
			     cached ? MEMREMAP_WB : MEMREMAP_WC);
}

static int probe(struct platform_device *parent)
{
	struct net_device *device;
	struct rampart_net *net;
	void *own, *other;
	const char *label;
	u64 slots;
	int error;

	device = devm_alloc_etherdev(&parent->dev, sizeof(*net));
	if (!device)
		return -ENOMEM;
	SET_NETDEV_DEV(device, &parent->dev);
	net = netdev_priv(device);
	net->device = device;
	own = map(parent, 0, &net->ring.slots);
	if (IS_ERR(own))
		return PTR_ERR(own);
	other = map(parent, 1, &slots);
	if (IS_ERR(other))
		return PTR_ERR(other);
	if (slots != net->ring.slots) {
		dev_err(&parent->dev, "%llu and %llu slots: expected the same\n",
			net->ring.slots, slots);
		return -EINVAL;
	}
	net->ring.own = own;
	net->ring.other = other;
	error = device_property_read_u32(&parent->dev, "rampart,doorbell", &net->doorbell);
	if (error) {
		dev_err(&parent->dev, "the property rampart,doorbell is missing\n");
		return error;
	}
	net->irq = platform_get_irq(parent, 0);
	if (net->irq < 0)
		return net->irq;
	device->tstats = devm_netdev_alloc_pcpu_stats(&parent->dev, struct pcpu_sw_netstats);
	if (!device->tstats)
		return -ENOMEM;
	if (device_get_ethdev_address(&parent->dev, device))
		eth_hw_addr_random(device);
	strscpy(device->name, "rampart%d", sizeof(device->name));
	device->netdev_ops = &operations;
	device->ethtool_ops = &rampart_net_ethtool;
	device->max_mtu = RAMPART_RING_MOST_FRAME - VLAN_ETH_HLEN;
	device->hw_features = NETIF_F_HW_CSUM | NETIF_F_SG | NETIF_F_RXCSUM;
	device->features = device->hw_features | NETIF_F_HIGHDMA;
	device->vlan_features = device->hw_features;
	INIT_DELAYED_WORK(&net->watch, watch);
	netif_napi_add(device, &net->napi, poll);
	platform_set_drvdata(parent, device);
	netif_carrier_off(device);
	error = devm_register_netdev(&parent->dev, device);
	if (error)
		return error;
	if (!device_property_read_string(&parent->dev, "label", &label))
		dev_set_alias(device, label, strnlen(label, IFALIASZ - 1));
	return 0;
}

static const struct of_device_id nodes[] = {
	{ .compatible = "rampart,network" },
	{}
};
MODULE_DEVICE_TABLE(of, nodes);

static const struct platform_device_id devices[] = {
	{ .name = "rampart-net" },
	{}
};
MODULE_DEVICE_TABLE(platform, devices);

static struct platform_driver rampart_net_driver = {
	.probe = probe,
	.id_table = devices,
	.driver = {
		.name = "rampart-net",
		.of_match_table = nodes,
	},
};
module_platform_driver(rampart_net_driver);

MODULE_DESCRIPTION("Network device between cells of the Rampart hypervisor");
MODULE_AUTHOR("The Rampart authors");
MODULE_LICENSE("GPL");
