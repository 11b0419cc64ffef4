// SPDX-License-Identifier: GPL-2.0-only
/*
 * arm64: interrupts to a taken CPU and from it, by a GICv3 that a device tree
 * describes (arm,gic-v3.yaml).
 *
 * A CPU gets a software-generated interrupt, the only one that is enabled there.
 * It answers with a shared peripheral interrupt that no device has, which it
 * makes pending in the distributor (Arm IHI 0069, 12.9.18).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/irq.h>
#include <linux/irqchip/arm-gic-v3.h>
#include <linux/irqdomain.h>
#include <linux/of.h>
#include <linux/of_address.h>
#include <linux/of_irq.h>

#include "driver.h"

#define FIRST_SHARED		32
/* More than the hypervisor's events and the doorbells of cells usually need. */
#define OF_HYPERVISOR		32
/* The second frame of a redistributor. */
#define PRIVATE_FRAME		0x10000
#define PRIORITY		0xa0
/* Some interrupts may belong to the secure world. */
#define MOST_TRIALS		16

static struct completion detach_tried;

void detach_kick(const struct detach_core *core)
{
	u64 mpidr = core->arch.mpidr;
	u64 value = MPIDR_AFFINITY_LEVEL(mpidr, 3) << 48 | MPIDR_AFFINITY_LEVEL(mpidr, 2) << 32 |
		    MPIDR_AFFINITY_LEVEL(mpidr, 1) << 16;
	u64 number = MPIDR_AFFINITY_LEVEL(mpidr, 0);

	value |= (u64)STUB_KICK_INTERRUPT << 24 | (number >> 4) << 44 | BIT_ULL(number & 15);
	/* What the CPU reads when it is interrupted. */
	dsb(sy);
	write_sysreg_s(value, SYS_ICC_SGI1R_EL1);
	isb();
}

/* As Linux does it when a CPU starts, with one interrupt. */
void detach_enable_kick(const struct detach_core *core)
{
	void __iomem *frame = core->arch.redistributor;
	void __iomem *private = frame + PRIVATE_FRAME;
	int turn;

	writel(readl(frame + GICR_WAKER) & ~GICR_WAKER_ProcessorSleep, frame + GICR_WAKER);
	for (turn = 0; turn < 1000 && readl(frame + GICR_WAKER) & GICR_WAKER_ChildrenAsleep; turn++)
		udelay(1);
	writel(~0, private + GICR_ICENABLER0);
	writel(~0, private + GICR_IGROUPR0);
	writel(~0, private + GICR_ICPENDR0);
	writel(~0, private + GICR_ICACTIVER0);
	writeb(PRIORITY, private + GICR_IPRIORITYR0 + STUB_KICK_INTERRUPT);
	writel(BIT(STUB_KICK_INTERRUPT), private + GICR_ISENABLER0);
}

void detach_fill_doorbell(struct detach_core *core)
{
	u32 number = detach_machine.doorbell_number;

	core->data->doorbell = GICD_ISPENDR + number / 32 * 4;
	WRITE_ONCE(core->data->doorbell_bit, BIT(number % 32));
}

static irqreturn_t detach_doorbell(int irq, void *context)
{
	complete(&detach_tried);
	return detach_rung(irq, context);
}

/* Returns whether the interrupt is free and arrives. */
static bool detach_try_doorbell(struct device_node *node, u32 number)
{
	struct of_phandle_args binding = {
		.np = node,
		.args_count = 3,
		.args = { 0, number - FIRST_SHARED, IRQ_TYPE_EDGE_RISING },
	};
	struct irq_domain *domain = irq_find_host(node);
	unsigned int irq;

	if (!domain || irq_find_mapping(domain, number))
		return false;
	irq = irq_create_of_mapping(&binding);
	if (!irq)
		return false;
	if (!request_irq(irq, detach_doorbell, IRQF_NO_THREAD | IRQF_NOBALANCING, "rampart-detach",
			 &detach_machine)) {
		reinit_completion(&detach_tried);
		if (!irq_set_irqchip_state(irq, IRQCHIP_STATE_PENDING, true) &&
		    wait_for_completion_timeout(&detach_tried, HZ / 5)) {
			detach_machine.doorbell = irq;
			detach_machine.doorbell_number = number;
			return true;
		}
		free_irq(irq, &detach_machine);
	}
	irq_dispose_mapping(irq);
	return false;
}

static int detach_doorbell_begin(struct device_node *node)
{
	void __iomem *distributor = of_iomap(node, 0);
	u32 number, trials;

	if (!distributor)
		return -ENOMEM;
	/* The last numbers are special. */
	number = min_t(u32, GICD_TYPER_SPIS(readl(distributor + GICD_TYPER)), 1020);
	/*
	 * Rampart's hypervisor takes free ones from the last that a device has downwards. This
	 * only avoids most refusals: one that Linux has mapped is not tried here, the trial of
	 * one that a cell has fails, and the hypervisor's driver gives no cell one that is
	 * requested here.
	 */
	if (number > FIRST_SHARED + 2 * OF_HYPERVISOR)
		number -= OF_HYPERVISOR;
	iounmap(distributor);
	init_completion(&detach_tried);
	for (trials = 0; number > FIRST_SHARED && trials < MOST_TRIALS; trials++) {
		if (detach_try_doorbell(node, --number))
			return 0;
	}
	pr_err("no shared interrupt is free\n");
	return -EBUSY;
}

/* Returns the registers of a CPU (Arm IHI 0069, 12.11). */
void __iomem *detach_redistributor_of(u64 mpidr)
{
	u32 affinity = MPIDR_AFFINITY_LEVEL(mpidr, 3) << 24 | (mpidr & 0xffffff);
	u32 regions = 1, index;
	struct device_node *node;
	u64 stride = 0, at, type;
	struct resource region;
	void __iomem *frame;

	node = of_find_compatible_node(NULL, NULL, "arm,gic-v3");
	of_property_read_u32(node, "#redistributor-regions", &regions);
	of_property_read_u64(node, "redistributor-stride", &stride);
	for (index = 1; index <= regions; index++) {
		if (of_address_to_resource(node, index, &region))
			break;
		at = region.start;
		do {
			frame = ioremap(at, 2 * PRIVATE_FRAME);
			if (!frame)
				break;
			type = readq(frame + GICR_TYPER);
			if (type >> 32 == affinity) {
				of_node_put(node);
				return frame;
			}
			iounmap(frame);
			at += stride ?: (type & GICR_TYPER_VLPIS ? 4 : 2) * PRIVATE_FRAME;
		} while (!(type & GICR_TYPER_LAST) && at < region.end);
	}
	of_node_put(node);
	return NULL;
}

int detach_gic_begin(void)
{
	struct device_node *node = of_find_compatible_node(NULL, NULL, "arm,gic-v3");
	struct resource distributor;
	int error;

	if (!node || of_address_to_resource(node, 0, &distributor)) {
		pr_err("needs a device tree with a GICv3\n");
		of_node_put(node);
		return -ENODEV;
	}
	detach_machine.distributor = distributor.start;
	error = detach_doorbell_begin(node);
	of_node_put(node);
	return error;
}

void detach_gic_end(void)
{
	free_irq(detach_machine.doorbell, &detach_machine);
	irq_dispose_mapping(detach_machine.doorbell);
}
