// SPDX-License-Identifier: GPL-2.0-only
/*
 * Serves clocks, resets and power domains to cells by SCMI (Arm DEN 0056): for each cell
 * that has such devices a page of messages, which both sides write. The kernel's own
 * frameworks count the uses of cells and of the root together.
 *
 * The cell is hostile: a request is copied once, then only the copy is used (scmi.h).
 * There is one request of a cell at a time, and their rate has a limit, because each
 * costs this kernel work. Nothing here waits for the cell.
 *
 * Locking: the lock of a server guards its uses and its page; it is taken inside rampart.lock.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/clk.h>
#include <linux/clk/clk-conf.h>
#include <linux/device.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/mutex.h>
#include <linux/of.h>
#include <linux/pm_domain.h>
#include <linux/pm_runtime.h>
#include <linux/reset.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "driver.h"
#include "scmi.h"

/*
 * Requests of a cell in an interval. The interval is shorter than the time that Linux's
 * client waits for an answer, 30 ms: a client that waits its turn loses no request.
 */
#define INTERVAL		msecs_to_jiffies(20)
#define MOST_REQUESTS		64

/* Longest path of a node. */
#define MOST_PATH_BYTES		1024

/* The words of the page (Linux, drivers/firmware/arm_scmi/shmem.c; DEN 0056, 5.1.2). */
#define CHANNEL_STATUS		1
#define CHANNEL_FLAGS		4
#define CHANNEL_BYTES		5
#define CHANNEL_HEADER		6
#define CHANNEL_WORDS		7
#define CHANNEL_IS_FREE		1

struct resource_use {
	u32 kind;
	/* What the cell has asked for; of a reset, that it is deasserted. */
	bool on;
	/* Another device of the machine has the same reset. */
	bool shared;
	union {
		struct clk *clock;
		struct reset_control *reset;
		struct device *domain;
	};
	/* The device that is in a power domain on behalf of the cell's. */
	struct device *base;
	/* Whether a reset was deasserted before. */
	bool was_on;
};

struct rampart_server {
	struct rampart_scmi_service service;
	struct delayed_work work;
	/* Guards the uses and the page. */
	struct mutex lock;
	/* The page may be nobody's. */
	bool paused;
	struct rampart_member *member;
	u32 *page;
	unsigned int interrupt;
	u32 doorbell;
	/* Begin of the interval, and the requests in it. */
	unsigned long begin;
	u32 requests;
	/* The numbers of each kind, and all resources. */
	struct resource_use *numbered[RAMPART_SCMI_KINDS][RAMPART_SCMI_MOST];
	u32 count;
	struct resource_use uses[];
};

static struct workqueue_struct *queue;

static struct resource_use *use_of(struct rampart_scmi_service *service, u32 kind, u32 number)
{
	struct rampart_server *server = container_of(service, struct rampart_server, service);

	return server->numbered[kind][number];
}

static int set_clock(struct clk *clock, bool on)
{
	int error;

	if (!on) {
		clk_rate_exclusive_put(clock);
		clk_disable_unprepare(clock);
		return 0;
	}
	error = clk_prepare_enable(clock);
	if (error)
		return error;
	/* The root does not change it either while the cell uses it. */
	error = clk_rate_exclusive_get(clock);
	if (error)
		clk_disable_unprepare(clock);
	return error;
}

static int set_domain(struct device *domain, bool on)
{
	return on ? pm_runtime_resume_and_get(domain) : pm_runtime_put_sync_suspend(domain);
}

/* The frameworks count: each use of the cell is counted once. */
static int set_use(struct resource_use *use, bool on)
{
	int error = 0;

	/* A reset that no other device has is set by each request. */
	if (use->on == on && (use->kind != RAMPART_SCMI_RESET || use->shared))
		return 0;
	switch (use->kind) {
	case RAMPART_SCMI_CLOCK:
		error = set_clock(use->clock, on);
		break;
	case RAMPART_SCMI_RESET:
		error = on ? reset_control_deassert(use->reset) : reset_control_assert(use->reset);
		break;
	case RAMPART_SCMI_POWER:
		error = set_domain(use->domain, on);
		/* It is on while others use it, which is no error. */
		if (!on)
			error = 0;
		break;
	}
	if (!error)
		use->on = on;
	return error;
}

static s32 set(struct rampart_scmi_service *service, u32 kind, u32 number, bool on)
{
	return set_use(use_of(service, kind, number), on) ? RAMPART_SCMI_HARDWARE :
		RAMPART_SCMI_SUCCESS;
}

static bool is_on(struct rampart_scmi_service *service, u32 kind, u32 number)
{
	return use_of(service, kind, number)->on;
}

static s32 reset(struct rampart_scmi_service *service, u32 number)
{
	struct resource_use *use = use_of(service, RAMPART_SCMI_RESET, number);

	if (use->shared)
		return RAMPART_SCMI_DENIED;
	if (reset_control_reset(use->reset))
		return RAMPART_SCMI_HARDWARE;
	use->on = true;
	return RAMPART_SCMI_SUCCESS;
}

static u64 rate(struct rampart_scmi_service *service, u32 number)
{
	return clk_get_rate(use_of(service, RAMPART_SCMI_CLOCK, number)->clock);
}

/* Releases what the cell uses: everything is as before its start. */
static void release(struct rampart_server *server)
{
	u32 index = server->count;

	while (index--) {
		struct resource_use *use = &server->uses[index];
		bool wanted = use->kind == RAMPART_SCMI_RESET && use->was_on;

		if (use->on != wanted && set_use(use, wanted))
			pr_warn("cell %s: a clock, reset or power domain is not released\n",
				server->member->blob->name);
	}
}

static void set_channel(struct rampart_server *server, u32 status)
{
	/* The answer is in memory before its status. */
	wmb();
	WRITE_ONCE(server->page[CHANNEL_STATUS], status);
	/* The status is in memory before the cell is rung. */
	wmb();
}

/* Copies the request; afterwards the page is only written. */
static void copy_request(const u32 *page, struct rampart_scmi_message *request)
{
	u32 index;

	request->bytes = READ_ONCE(page[CHANNEL_BYTES]);
	request->header = READ_ONCE(page[CHANNEL_HEADER]);
	for (index = 0; index < RAMPART_SCMI_WORDS; index++)
		request->words[index] = READ_ONCE(page[CHANNEL_WORDS + index]);
}

static void put_answer(struct rampart_server *server, const struct rampart_scmi_message *answer)
{
	u32 *page = server->page;
	u32 index;

	for (index = 0; index < answer->bytes / 4 - 1; index++)
		WRITE_ONCE(page[CHANNEL_WORDS + index], answer->words[index]);
	WRITE_ONCE(page[CHANNEL_HEADER], answer->header);
	WRITE_ONCE(page[CHANNEL_BYTES], answer->bytes);
	set_channel(server, CHANNEL_IS_FREE);
}

/* Returns how long to wait before the next request, in jiffies. */
static unsigned long limit(struct rampart_server *server)
{
	if (time_after_eq(jiffies, server->begin + INTERVAL)) {
		server->begin = jiffies;
		server->requests = 0;
	}
	if (server->requests++ < MOST_REQUESTS)
		return 0;
	return server->begin + INTERVAL - jiffies;
}

/* Serves the request of a running cell. */
static void serve_request(struct rampart_server *server)
{
	struct rampart_scmi_message request, answer = {};
	struct rampart_answer ring;
	/* Rings without a request count too. */
	unsigned long pause = limit(server);

	if (pause) {
		queue_delayed_work(queue, &server->work, pause);
		return;
	}
	if (READ_ONCE(server->page[CHANNEL_STATUS]) & CHANNEL_IS_FREE)
		return;
	/* The status is read before the request. */
	rmb();
	copy_request(server->page, &request);
	rampart_scmi_answer(&server->service, &request, &answer);
	put_answer(server, &answer);
	/* If the cell has ended since, the hypervisor refuses. */
	rampart_call(RAMPART_CALL_DOORBELL, server->doorbell, 0, &ring);
}

static void serve(struct work_struct *work)
{
	struct rampart_server *server = container_of(to_delayed_work(work), struct rampart_server,
						     work);

	mutex_lock(&server->lock);
	if (!server->paused) {
		if (rampart_is_running(server->member->number))
			serve_request(server);
		else
			release(server);
	}
	mutex_unlock(&server->lock);
}

/* A cell rings, or the state of a cell changes. */
static irqreturn_t rung(int irq, void *data)
{
	struct rampart_server *server = data;

	queue_delayed_work(queue, &server->work, 0);
	return IRQ_HANDLED;
}

/* Called when the state of a cell may have changed; does not sleep. */
void rampart_scmi_look(void)
{
	struct rampart_server *server;
	u32 number;

	rcu_read_lock();
	for (number = 0; number < RAMPART_MAXIMUM_CELLS; number++) {
		server = rcu_dereference(rampart.servers[number]);
		if (server)
			queue_delayed_work(queue, &server->work, 0);
	}
	rcu_read_unlock();
}

static int get_clock(struct resource_use *use, struct device_node *node, u32 index)
{
	struct clk *clock = of_clk_get(node, index);

	if (IS_ERR(clock))
		return PTR_ERR(clock);
	use->clock = clock;
	return 0;
}

static int get_reset(struct resource_use *use, struct device_node *node, u32 index)
{
	struct reset_control *control = use->shared ?
		of_reset_control_get_shared_by_index(node, index) :
		of_reset_control_get_exclusive_by_index(node, index);

	if (IS_ERR(control))
		return PTR_ERR(control);
	use->reset = control;
	/* Positive: asserted. Without an answer of the controller, as boot loaders leave it. */
	use->was_on = !use->shared && reset_control_status(control) <= 0;
	use->on = use->was_on;
	return 0;
}

static int get_domain(struct resource_use *use, struct device_node *node, u32 index,
		      const char *name)
{
	struct device *domain;

	/* The device of the node itself has no driver, or does not exist. */
	use->base = root_device_register(name);
	if (IS_ERR(use->base)) {
		int error = PTR_ERR(use->base);

		use->base = NULL;
		return error;
	}
	use->base->of_node = of_node_get(node);
	domain = dev_pm_domain_attach_by_id(use->base, index);
	if (IS_ERR_OR_NULL(domain))
		return domain ? PTR_ERR(domain) : -ENOENT;
	use->domain = domain;
	return 0;
}

static void put_use(struct resource_use *use)
{
	switch (use->kind) {
	case RAMPART_SCMI_CLOCK:
		clk_put(use->clock);
		break;
	case RAMPART_SCMI_RESET:
		if (use->reset)
			reset_control_put(use->reset);
		break;
	case RAMPART_SCMI_POWER:
		if (use->domain)
			dev_pm_domain_detach(use->domain, true);
		if (use->base) {
			of_node_put(use->base->of_node);
			use->base->of_node = NULL;
			root_device_unregister(use->base);
		}
		break;
	}
}

static int add_resource(struct rampart_server *server, const struct rampart_resource *resource)
{
	struct resource_use *use = &server->uses[server->count];
	struct device_node *node;
	char *path, name[48];
	u32 kind = resource->kind;
	int error;

	if (kind >= RAMPART_SCMI_KINDS || resource->shared > 1 || resource->reserved ||
	    server->service.counts[kind] == RAMPART_SCMI_MOST)
		return -EINVAL;
	path = strndup_user(u64_to_user_ptr(resource->path), MOST_PATH_BYTES);
	if (IS_ERR(path))
		return PTR_ERR(path);
	node = of_find_node_by_path(path);
	error = node ? 0 : -ENOENT;
	use->kind = kind;
	use->shared = resource->shared;
	/* What the tree assigns, in case that no driver of this kernel has had the device. */
	if (node && kind == RAMPART_SCMI_CLOCK && of_clk_set_defaults(node, false))
		pr_warn("cell %s: not all assigned rates of %s are set\n",
			server->member->blob->name, path);
	if (!error && kind == RAMPART_SCMI_CLOCK)
		error = get_clock(use, node, resource->index);
	if (!error && kind == RAMPART_SCMI_RESET)
		error = get_reset(use, node, resource->index);
	if (!error && kind == RAMPART_SCMI_POWER) {
		snprintf(name, sizeof(name), "rampart-cell%u-power%u", server->member->number,
			 server->service.counts[kind]);
		error = get_domain(use, node, resource->index, name);
	}
	of_node_put(node);
	if (error) {
		static const char *const kinds[] = { "clock", "reset", "power domain" };

		pr_err("cell %s: %s %u of %s is not available: %d%s\n", server->member->blob->name,
		       kinds[kind], resource->index, path, error,
		       error == -EPROBE_DEFER ? "; its driver is not loaded" : "");
		put_use(use);
	} else {
		server->numbered[kind][server->service.counts[kind]++] = use;
		server->count++;
	}
	kfree(path);
	return error;
}

static void free_server(struct rampart_server *server)
{
	while (server->count--)
		put_use(&server->uses[server->count]);
	if (server->page)
		memunmap(server->page);
	kfree(server);
}

static struct rampart_server *server_of(u32 number)
{
	return rcu_dereference_protected(rampart.servers[number], lockdep_is_held(&rampart.lock));
}

int rampart_scmi_create(const struct rampart_scmi *request)
{
	const u32 flags = RAMPART_MEMORY_SHARED | RAMPART_MEMORY_WRITE | RAMPART_MEMORY_ROOT_READ |
			  RAMPART_MEMORY_ROOT_WRITE;
	struct rampart_resource resource;
	struct rampart_member *member;
	struct rampart_server *server;
	struct resource page = {};
	u32 index;
	int error;

	lockdep_assert_held(&rampart.lock);
	if (request->reserved || !request->count ||
	    request->count > RAMPART_SCMI_KINDS * RAMPART_SCMI_MOST)
		return -EINVAL;
	if (!rampart.enabled)
		return -ENODEV;
	member = request->cell < RAMPART_MAXIMUM_CELLS ? rampart.members[request->cell] : NULL;
	if (!member)
		return -ENOENT;
	if (server_of(request->cell))
		return -EEXIST;
	if (request->doorbell >= rampart.system->doorbell_count) {
		pr_err("cell %s: the root has no doorbell %u\n", member->blob->name,
		       request->doorbell);
		return -EINVAL;
	}
	if (!rampart_find_region(member->blob, request->page, flags, &page) ||
	    resource_size(&page) < PAGE_SIZE) {
		pr_err("cell %s: it has no such page, written by the root and by the cell\n",
		       member->blob->name);
		return -EINVAL;
	}
	server = kzalloc(struct_size(server, uses, request->count), GFP_KERNEL);
	if (!server)
		return -ENOMEM;
	server->member = member;
	server->doorbell = request->doorbell;
	server->begin = jiffies;
	server->service.set = set;
	server->service.is_on = is_on;
	server->service.reset = reset;
	server->service.rate = rate;
	mutex_init(&server->lock);
	INIT_DELAYED_WORK(&server->work, serve);
	/* As the cell accesses it: a device's registers or memory that is not cached. */
	server->page = memremap(page.start, RAMPART_PAGE_BYTES, MEMREMAP_WC);
	error = server->page ? 0 : -ENOMEM;
	for (index = 0; index < request->count && !error; index++) {
		const struct rampart_resource __user *all = u64_to_user_ptr(request->resources);

		if (copy_from_user(&resource, &all[index], sizeof(resource)))
			error = -EFAULT;
		else
			error = add_resource(server, &resource);
	}
	if (error)
		goto free;
	error = rampart_map_bell(&server->interrupt);
	if (error)
		goto free;
	set_channel(server, CHANNEL_IS_FREE);
	error = request_irq(server->interrupt, rung, IRQF_SHARED, "rampart-scmi", server);
	if (error)
		goto free;
	rcu_assign_pointer(rampart.servers[request->cell], server);
	return 0;

free:
	free_server(server);
	return error;
}

/* Before a start of the cell, and after a stop: it uses nothing. */
void rampart_scmi_release(u32 number)
{
	struct rampart_server *server = server_of(number);

	if (!server)
		return;
	mutex_lock(&server->lock);
	release(server);
	if (!server->paused)
		set_channel(server, CHANNEL_IS_FREE);
	mutex_unlock(&server->lock);
}

/*
 * Around the destruction of a cell: its page is unmapped and wiped, and an access of this
 * kernel would be an external abort.
 */
void rampart_scmi_pause(u32 number, bool paused)
{
	struct rampart_server *server = server_of(number);

	if (!server)
		return;
	mutex_lock(&server->lock);
	server->paused = paused;
	mutex_unlock(&server->lock);
	queue_delayed_work(queue, &server->work, 0);
}

/* After the end of a cell. */
void rampart_scmi_end(u32 number)
{
	struct rampart_server *server = server_of(number);

	if (!server)
		return;
	RCU_INIT_POINTER(rampart.servers[number], NULL);
	free_irq(server->interrupt, server);
	synchronize_rcu();
	cancel_delayed_work_sync(&server->work);
	release(server);
	free_server(server);
}

int rampart_scmi_begin(void)
{
	queue = alloc_workqueue("rampart-scmi", WQ_UNBOUND | WQ_HIGHPRI, 0);
	return queue ? 0 : -ENOMEM;
}

void rampart_scmi_exit(void)
{
	destroy_workqueue(queue);
}
