// SPDX-License-Identifier: GPL-2.0-only
/* What ethtool shows. */
#include <linux/ethtool.h>
#include <linux/string.h>

#include "driver.h"

static const char names[][ETH_GSTRING_LEN] = {
	"interrupts",
	"rings_received",
	"rings_sent",
	"sessions",
	"refused",
};

static void get_drvinfo(struct net_device *device, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "rampart-net", sizeof(info->driver));
	strscpy(info->bus_info, dev_name(device->dev.parent), sizeof(info->bus_info));
}

/* Memory has no speed of its own. */
static int get_link_ksettings(struct net_device *device, struct ethtool_link_ksettings *settings)
{
	settings->base.speed = SPEED_UNKNOWN;
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static int get_sset_count(struct net_device *device, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(names) : -EOPNOTSUPP;
}

static void get_strings(struct net_device *device, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, names, sizeof(names));
}

static void get_ethtool_stats(struct net_device *device, struct ethtool_stats *stats, u64 *data)
{
	const struct rampart_net *net = netdev_priv(device);

	BUILD_BUG_ON(sizeof(net->counts) != ARRAY_SIZE(names) * sizeof(*data));
	memcpy(data, &net->counts, sizeof(net->counts));
}

const struct ethtool_ops rampart_net_ethtool = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link_ksettings,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_ethtool_stats,
	.get_ts_info = ethtool_op_get_ts_info,
};
