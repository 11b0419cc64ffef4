// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A model of a cache that all CPUs share, as a plugin of QEMU: physically indexed,
 * least recently used. It counts for each CPU how often it misses, and how many of its
 * lines each CPU evicts. It models data accesses and no times; the caches above it,
 * instruction fetches and walks of translation tables are left out.
 *
 * Options: out=FILE (counts, see struct counts), from=ADDRESS and to=ADDRESS (the
 * physical memory that is cached), sets=NUMBER, ways=NUMBER, line=BYTES.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

enum { CPUS = 8 };

/* The file, which others read and whose first word they write at any time. */
struct counts {
	/* Nothing is counted while it is 0; another value empties the cache and begins at 0. */
	uint64_t run;
	/* The latest value of run that the model has seen. */
	uint64_t seen;
	struct {
		uint64_t accesses;
		uint64_t misses;
		/* Its lines that each CPU has evicted. */
		uint64_t lost_to[CPUS];
	} cpus[CPUS];
};

struct line {
	/* Number of the line in physical memory plus 1; 0 for none. */
	uint64_t number;
	uint64_t used;
	unsigned int owner;
};

static struct counts *counts;
static struct line *lines;
static uint64_t from, to = UINT64_MAX, sets = 1024, ways = 16, line_bytes = 64;
static uint64_t now;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void touch(unsigned int cpu, uint64_t number)
{
	struct line *set = &lines[number % sets * ways], *oldest = set;

	counts->cpus[cpu].accesses++;
	now++;
	for (uint64_t way = 0; way < ways; way++) {
		if (set[way].number == number + 1) {
			set[way].used = now;
			set[way].owner = cpu;
			return;
		}
		if (set[way].used < oldest->used)
			oldest = &set[way];
	}
	counts->cpus[cpu].misses++;
	if (oldest->number && oldest->owner != cpu)
		counts->cpus[oldest->owner].lost_to[cpu]++;
	*oldest = (struct line){ .number = number + 1, .used = now, .owner = cpu };
}

static void access_memory(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	uint64_t run = __atomic_load_n(&counts->run, __ATOMIC_ACQUIRE);
	struct qemu_plugin_hwaddr *location;
	uint64_t physical;

	(void)data;
	if (!run || cpu >= CPUS)
		return;
	/* The address after all stages of translation. */
	location = qemu_plugin_get_hwaddr(info, address);
	if (!location || qemu_plugin_hwaddr_is_io(location))
		return;
	physical = qemu_plugin_hwaddr_phys_addr(location);
	if (physical < from || physical >= to)
		return;
	pthread_mutex_lock(&lock);
	if (counts->seen != run) {
		memset(lines, 0, sets * ways * sizeof(*lines));
		memset(counts->cpus, 0, sizeof(counts->cpus));
		counts->seen = run;
	}
	touch(cpu, physical / line_bytes);
	pthread_mutex_unlock(&lock);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	(void)id;
	for (size_t index = 0; index < qemu_plugin_tb_n_insns(block); index++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, index), access_memory,
						 QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
}

static int fail(const char *what, const char *value)
{
	fprintf(stderr, "cache model: %s: %s\n", what, value);
	return -1;
}

static struct counts *map(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *mapped = MAP_FAILED;

	if (file < 0)
		return NULL;
	if (!ftruncate(file, sizeof(struct counts)))
		mapped = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return mapped == MAP_FAILED ? NULL : mapped;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	const struct {
		const char *name;
		uint64_t *value;
	} numbers[] = {
		{ "from", &from }, { "to", &to }, { "sets", &sets }, { "ways", &ways }, { "line", &line_bytes },
	};

	(void)info;
	for (int index = 0; index < argc; index++) {
		char *end, *value = strchr(argv[index], '=');
		size_t known = 0;

		if (!value)
			return fail("expected NAME=VALUE", argv[index]);
		*value++ = '\0';
		if (!strcmp(argv[index], "out")) {
			counts = map(value);
			if (!counts)
				return fail("cannot map", value);
			continue;
		}
		while (known < sizeof(numbers) / sizeof(*numbers) && strcmp(argv[index], numbers[known].name))
			known++;
		if (known == sizeof(numbers) / sizeof(*numbers))
			return fail("unknown option", argv[index]);
		*numbers[known].value = strtoull(value, &end, 0);
		if (end == value || *end)
			return fail("not a number", value);
	}
	if (!counts || !sets || !ways || !line_bytes || sets > UINT64_C(1) << 24 || ways > 1024)
		return fail("expected out=FILE and a shape", "sets=, ways=, line=");
	lines = calloc(sets * ways, sizeof(*lines));
	if (!lines)
		return fail("no memory", "lines");
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	return 0;
}
