// SPDX-License-Identifier: GPL-2.0-only
/*
 * Launches the hypervisor under this kernel and ends it again.
 *
 * A kernel that was booted at EL2 without VHE leaves a stub there, which
 * handles a few calls (arch/arm64/kernel/hyp-stub.S, Documentation/virt/kvm/
 * arm/hyp-abi.rst). HVC_SOFT_RESTART branches to a physical address at EL2. The
 * driver needs no other support of the kernel and does not modify it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/firmware.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uaccess.h>
#include <asm/barrier.h>
#include <asm/cacheflush.h>
#include <asm/cputype.h>
#include <asm/sysreg.h>
#include <asm/virt.h>

#include "driver.h"
#include "refusals.h"

/* Timeout of the CPUs' rendezvous at EL2; other CPUs may have interrupts off. */
#define RENDEZVOUS_US	(1 * USEC_PER_SEC)

struct rampart_entry {
	phys_addr_t base;
	phys_addr_t entry;
	u64 step;
	/* An answer other than RAMPART_SUCCESS, if any. */
	atomic64_t outcome;
	atomic_t no_stub;
	u64 mpidr[NR_CPUS];
	/* ID_AA64MMFR0_EL1.PARange, and the CPU with the least: it prepares the launch. */
	u8 range[NR_CPUS];
	int least;
};

/* Calls the stub or the hypervisor. */
static noinline u64 rampart_hvc(u64 function, u64 first, u64 second, u64 third, u64 fourth,
				u64 *values)
{
	register u64 x0 asm("x0") = function;
	register u64 x1 asm("x1") = first;
	register u64 x2 asm("x2") = second;
	register u64 x3 asm("x3") = third;
	register u64 x4 asm("x4") = fourth;

	asm volatile("hvc #0"
		     : "+r" (x0), "+r" (x1), "+r" (x2), "+r" (x3), "+r" (x4)
		     :
		     : "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
		       "x16", "x17", "cc", "memory");
	if (values) {
		values[0] = x1;
		values[1] = x2;
		values[2] = x3;
	}
	return x0;
}

/* A CPU whose cell fails holds the hypervisor's lock for some accesses. */
#define BUSY_TRIES	1000
#define BUSY_PAUSE_US	20

void rampart_call(u64 function, u64 first, u64 second, struct rampart_answer *answer)
{
	int tries = BUSY_TRIES;

	might_sleep();
	do {
		answer->outcome = rampart_hvc(function, first, second, 0, 0, answer->values);
		if (answer->outcome != RAMPART_BUSY)
			return;
		usleep_range(BUSY_PAUSE_US, 2 * BUSY_PAUSE_US);
	} while (--tries);
}

int rampart_error(const struct rampart_answer *answer)
{
	return answer->outcome == RAMPART_SUCCESS ? 0 : -EREMOTEIO;
}

/* Cleans to the point of coherency: the next reader may run with its caches off. */
void rampart_clean(const void *start, size_t bytes)
{
	u64 line = 4 << ((read_sysreg(ctr_el0) >> 16) & 0xf);
	u64 at = (u64)start & ~(line - 1);
	u64 end = (u64)start + bytes;

	for (; at < end; at += line)
		asm volatile("dc civac, %0" : : "r" (at) : "memory");
	dsb(sy);
	/* Instructions fetched from there before. */
	asm volatile("ic ialluis" : : : "memory");
	dsb(ish);
	isb();
}

struct rampart_blob_header *rampart_read_blob(u64 address, u64 bytes, u64 magic)
{
	struct rampart_blob_header *blob;

	if (bytes < sizeof(*blob) || bytes > RAMPART_MAXIMUM_BLOB_BYTES)
		return ERR_PTR(-EINVAL);
	/* Physically contiguous: the hypervisor reads it too. */
	blob = memdup_user(u64_to_user_ptr(address), bytes);
	if (IS_ERR(blob))
		return blob;
	if (blob->magic != magic || blob->revision != RAMPART_REVISION || blob->bytes != bytes) {
		kfree(blob);
		return ERR_PTR(-EPROTONOSUPPORT);
	}
	return blob;
}

/* Runs on each CPU: probes the stub and reads MPIDR_EL1. */
static void rampart_probe(void *argument)
{
	struct rampart_entry *entry = argument;

	entry->mpidr[smp_processor_id()] = read_cpuid_mpidr() & RAMPART_AFFINITY;
	entry->range[smp_processor_id()] = read_sysreg(id_aa64mmfr0_el1) & 0xf;
	/*
	 * The stub answers unknown calls with HVC_STUB_ERR. KVM, while guests
	 * run, and other hypervisors answer differently.
	 */
	if ((u32)rampart_hvc(HVC_STUB_HCALL_NR + 0x52, 0, 0, 0, 0, NULL) != HVC_STUB_ERR)
		atomic_inc(&entry->no_stub);
}

/* Runs on each CPU, or on one of them in the first step. */
static void rampart_enter(void *argument)
{
	struct rampart_entry *entry = argument;
	u32 index = rampart.index[smp_processor_id()];
	unsigned long flags;
	s64 outcome;

	local_irq_save(flags);
	outcome = rampart_hvc(HVC_SOFT_RESTART, entry->entry, entry->base, index, entry->step,
			      NULL);
	local_irq_restore(flags);
	if (outcome != RAMPART_SUCCESS)
		atomic64_set(&entry->outcome, outcome);
}

static void rampart_exit(void *argument)
{
	atomic64_t *outcome = argument;
	unsigned long flags;
	s64 answer;

	local_irq_save(flags);
	answer = rampart_hvc(RAMPART_CALL_DISABLE, 0, 0, 0, 0, NULL);
	local_irq_restore(flags);
	if (answer != RAMPART_SUCCESS)
		atomic64_set(outcome, answer);
}

/* Checks all preconditions. Called with CPU hotplug disabled. */
static int rampart_check(const struct rampart_enable *request, struct rampart_entry *entry)
{
	/* ID_AA64PFR0_EL1.EL2 is 0 on a CPU without EL2. */
	u64 level_2 = (read_sysreg(id_aa64pfr0_el1) >> 8) & 0xf;
	unsigned int index = 0;
	int cpu;

	if (is_kernel_in_hyp_mode()) {
		pr_err("this kernel runs at EL2 (VHE); boot it with kvm-arm.mode=nvhe\n");
		return -EOPNOTSUPP;
	}
	if (!level_2) {
		pr_err("EL2 is not available: the CPU has none or a hypervisor uses it; boot this kernel at EL2\n");
		return -ENODEV;
	}
	if (!request->memory_bytes || !IS_ALIGNED(request->memory, RAMPART_MEMORY_ALIGNMENT) ||
	    !IS_ALIGNED(request->memory_bytes, RAMPART_MEMORY_ALIGNMENT) ||
	    request->memory >> 30 != (request->memory + request->memory_bytes - 1) >> 30) {
		pr_err("memory at %#llx, %#llx bytes: expected multiples of 2 MiB within 1 GiB\n",
		       request->memory, request->memory_bytes);
		return -EINVAL;
	}
	if (region_intersects(request->memory, request->memory_bytes, IORESOURCE_SYSTEM_RAM,
			      IORES_DESC_NONE) != REGION_DISJOINT) {
		pr_err("memory at %#llx is in use by this kernel; reserve it with mem= or a reserved-memory node\n",
		       request->memory);
		return -EADDRINUSE;
	}
	if (num_online_cpus() != num_present_cpus() || num_online_cpus() > RAMPART_MAXIMUM_CPUS) {
		pr_err("%u of %u CPUs are online: expected all, and at most %u\n",
		       num_online_cpus(), num_present_cpus(), RAMPART_MAXIMUM_CPUS);
		return -EBUSY;
	}
	on_each_cpu(rampart_probe, entry, 1);
	if (atomic_read(&entry->no_stub)) {
		pr_err("the kernel's stub at EL2 does not answer on %d CPUs; end all KVM guests (Linux 6.12 and newer: also boot with kvm.enable_virt_at_load=0), or boot this kernel at EL2\n",
		       atomic_read(&entry->no_stub));
		return -EBUSY;
	}
	entry->least = cpumask_first(cpu_online_mask);
	for_each_online_cpu(cpu) {
		rampart.index[cpu] = index++;
		rampart.mpidr[cpu] = entry->mpidr[cpu];
		if (entry->range[cpu] < entry->range[entry->least])
			entry->least = cpu;
	}
	return 0;
}

/* The platform follows the header (format.rs); the hypervisor checks it. */
const struct rampart_platform *rampart_platform(const struct rampart_blob_header *blob)
{
	return (const void *)(blob + 1);
}

static const char *rampart_image(const struct rampart_blob_header *blob)
{
	if (rampart_platform(blob)->version == 2)
		return RAMPART_FIRMWARE_GICV2;
	return blob->stream_count ? RAMPART_FIRMWARE_SMMU : RAMPART_FIRMWARE;
}

/* Fills the memory with image, header and configuration in the layout of interface.h. */
static int rampart_fill(void *memory, const struct rampart_enable *request,
			const struct firmware *image, const struct rampart_blob_header *blob)
{
	const struct rampart_header *source = (const void *)image->data;
	struct rampart_header *header = memory;
	u64 configuration, status;
	int cpu;

	if (image->size < sizeof(*source) || source->magic != RAMPART_MAGIC ||
	    source->revision != RAMPART_REVISION || source->header_bytes != sizeof(*source) ||
	    source->image_bytes != image->size || source->core_bytes < image->size) {
		pr_err("%s is not a hypervisor image of revision %u; install driver and image of the same build\n",
		       rampart_image(blob), RAMPART_REVISION);
		return -ENOEXEC;
	}
	configuration = source->core_bytes + num_online_cpus() * source->per_cpu_bytes;
	status = PAGE_ALIGN(configuration + blob->bytes);
	if (status + RAMPART_STATUS_BYTES > request->memory_bytes) {
		pr_err("%#llx bytes of memory: expected more than %#llx, for translation tables\n",
		       request->memory_bytes, status + RAMPART_STATUS_BYTES);
		return -ENOSPC;
	}
	memset(memory, 0, request->memory_bytes);
	memcpy(memory, image->data, image->size);
	memcpy(memory + configuration, blob, blob->bytes);
	header->physical_base = request->memory;
	header->memory_bytes = request->memory_bytes;
	header->configuration = configuration;
	header->configuration_bytes = blob->bytes;
	header->status = status;
	header->cpu_count = num_online_cpus();
	header->rendezvous_microseconds = RENDEZVOUS_US;
	for_each_online_cpu(cpu)
		header->mpidrs[rampart.index[cpu]] = rampart.mpidr[cpu];
	rampart.status_address = request->memory + status;
	return 0;
}

/* Logs why the hypervisor refused, and copies reason and entry to the answer. */
static void rampart_log_refusal(struct rampart_answer *answer, const struct rampart_status *status)
{
	const char *reason = "an unknown reason";
	u64 refusal = READ_ONCE(status->refusal);

	if (answer->outcome != RAMPART_REFUSED || !refusal) {
		pr_err("the hypervisor refused to start: %lld; its log: %.*s\n", answer->outcome,
		       RAMPART_LOG_BYTES, status->log);
		return;
	}
	answer->values[0] = refusal;
	answer->values[1] = READ_ONCE(status->refused_entry);
	if (refusal < ARRAY_SIZE(rampart_refusals) && rampart_refusals[refusal])
		reason = rampart_refusals[refusal];
	pr_err("the hypervisor refused entry %llu of a table of the system's configuration: %s (%llu)\n",
	       answer->values[1], reason, refusal);
}

static int rampart_run(struct rampart_entry *entry, struct rampart_enable *request)
{
	entry->step = RAMPART_LAUNCH_PREPARE;
	smp_call_function_single(entry->least, rampart_enter, entry, 1);
	if (!atomic64_read(&entry->outcome)) {
		entry->step = RAMPART_LAUNCH_ENTER;
		on_each_cpu(rampart_enter, entry, 1);
	}
	request->answer.outcome = atomic64_read(&entry->outcome);
	return rampart_error(&request->answer);
}

int rampart_launch(struct rampart_enable *request, struct device *device)
{
	const struct firmware *image;
	struct rampart_blob_header *blob;
	struct rampart_status *status;
	struct rampart_entry *entry;
	void *memory;
	int error;

	lockdep_assert_held(&rampart.lock);
	if (rampart.enabled)
		return -EALREADY;
	if (rampart.suspending)
		return -EBUSY;
	blob = rampart_read_blob(request->configuration, request->configuration_bytes,
				 RAMPART_SYSTEM_MAGIC);
	if (IS_ERR(blob))
		return PTR_ERR(blob);
	if (blob->bytes < sizeof(*blob) + sizeof(struct rampart_platform)) {
		error = -EINVAL;
		goto free_blob;
	}
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry) {
		error = -ENOMEM;
		goto free_blob;
	}
	error = request_firmware(&image, rampart_image(blob), device);
	if (error)
		goto free_entry;
	cpus_read_lock();
	error = rampart_check(request, entry);
	if (error)
		goto unlock;
	if (!request_mem_region(request->memory, request->memory_bytes, "rampart hypervisor")) {
		error = -EBUSY;
		goto unlock;
	}
	memory = memremap(request->memory, request->memory_bytes, MEMREMAP_WB);
	if (!memory) {
		error = -ENOMEM;
		goto release;
	}
	error = rampart_fill(memory, request, image, blob);
	if (error)
		goto unmap;
	status = memremap(rampart.status_address, RAMPART_STATUS_BYTES, MEMREMAP_WB);
	if (!status) {
		error = -ENOMEM;
		goto unmap;
	}
	rampart_clean(memory, request->memory_bytes);
	entry->base = request->memory;
	entry->entry = request->memory + ((struct rampart_header *)memory)->entry;
	error = rampart_run(entry, request);
	if (error) {
		rampart_log_refusal(&request->answer, status);
		memunmap(status);
		goto unmap;
	}
	memunmap(memory);
	rampart.memory = request->memory;
	rampart.memory_bytes = request->memory_bytes;
	rampart.system = blob;
	rampart_view_status(status);
	rampart.enabled = true;
	rampart.event_interrupt = rampart_platform(blob)->event_interrupt;
	__module_get(THIS_MODULE);
	rampart_watch_begin(rampart.event_interrupt);
	cpus_read_unlock();
	release_firmware(image);
	kfree(entry);
	return 0;

unmap:
	memunmap(memory);
release:
	release_mem_region(request->memory, request->memory_bytes);
unlock:
	cpus_read_unlock();
	release_firmware(image);
free_entry:
	kfree(entry);
free_blob:
	kfree(blob);
	return error;
}

int rampart_leave(void)
{
	atomic64_t outcome = ATOMIC64_INIT(RAMPART_SUCCESS);
	struct rampart_status *status;

	lockdep_assert_held(&rampart.lock);
	if (!rampart.enabled)
		return -ENODEV;
	if (rampart_has_cells()) {
		pr_err("cells exist; destroy them first\n");
		return -EBUSY;
	}
	if (rampart.attached) {
		pr_err("this kernel was started by the hypervisor, which ends with a reset of the machine\n");
		return -EOPNOTSUPP;
	}
	rampart_network_release();
	rampart_watch_end();
	cpus_read_lock();
	on_each_cpu(rampart_exit, &outcome, 1);
	cpus_read_unlock();
	if (atomic64_read(&outcome)) {
		pr_err("the hypervisor refused to end: %lld\n", (s64)atomic64_read(&outcome));
		rampart_watch_begin(rampart.event_interrupt);
		return -EREMOTEIO;
	}
	rampart.enabled = false;
	status = rampart.status;
	rampart_view_status(NULL);
	memunmap(status);
	kfree(rampart.system);
	rampart.system = NULL;
	release_mem_region(rampart.memory, rampart.memory_bytes);
	module_put(THIS_MODULE);
	return 0;
}
