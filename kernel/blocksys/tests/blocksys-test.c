// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests blocks and refusals of /dev/blocksys on the running machine, which must
 * be a simulated one. Build it static and copy it there. Run it as root with the
 * module loaded:
 *
 *   blocksys-test all CPU OTHER_CPU   every check; both CPUs are stopped and
 *                                     unplugged
 *   blocksys-test hold CPU            blocks CPU until killed, for tests from
 *                                     outside
 *
 * Prints a line for each check; exits 1 if any failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../blocksys.h"

#define MILLI 1000000ULL
#define MASK_BYTES 128

static int failures;

__attribute__((format(printf, 2, 3)))
static void check(int good, const char *format, ...)
{
	va_list arguments;

	fputs(good ? "ok      " : "FAILED  ", stdout);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
	failures += !good;
}

static int open_device(int flags)
{
	return open("/dev/blocksys", O_RDONLY | O_CLOEXEC | flags);
}

static unsigned char mask[MASK_BYTES];

static struct blocksys_plan plan_for(int cpu, int other)
{
	struct blocksys_plan plan = {
		.length = 2 * MILLI,
		.pause = 4 * MILLI,
		.seed = 1,
		.cpus = (uintptr_t)mask,
		.cpus_bytes = sizeof(mask),
		.count = 10,
	};

	memset(mask, 0, sizeof(mask));
	mask[cpu / 8] |= 1 << (cpu % 8);
	if (other >= 0)
		mask[other / 8] |= 1 << (other % 8);
	return plan;
}

static struct blocksys_state state_of(int device)
{
	struct blocksys_state state = { 0 };

	if (ioctl(device, BLOCKSYS_QUERY, &state))
		perror("query");
	return state;
}

static void refused(int device, const char *what, struct blocksys_plan plan, int expected)
{
	int result = ioctl(device, BLOCKSYS_START, &plan);
	int error = result ? errno : 0;

	check(error == expected, "refuses %s: %s", what, strerror(error));
	if (!result)
		ioctl(device, BLOCKSYS_STOP);
}

static void drop_rawio(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		perror("capget");
	data[0].effective &= ~(1U << CAP_SYS_RAWIO);
	if (syscall(SYS_capset, &header, data))
		perror("capset");
}

/* Runs in its own process without the capability. */
static int without_rawio(int device)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		struct blocksys_plan plan = plan_for(1, -1);
		int error = 0;

		drop_rawio();
		if (device < 0)
			error = open_device(0) < 0 ? errno : 0;
		else
			error = ioctl(device, BLOCKSYS_START, &plan) ? errno : 0;
		_exit(error);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void refusals(int cpu)
{
	struct blocksys_plan good = plan_for(cpu, -1), plan;
	struct blocksys_state state;
	struct blocksys_record record;
	unsigned char none[MASK_BYTES] = { 0 }, beyond[MASK_BYTES] = { 0 };
	int device, second;

	check(without_rawio(-1) == EPERM, "refuses to be opened without CAP_SYS_RAWIO");
	device = open_device(0);
	check(device >= 0, "opens");
	second = open_device(0);
	check(second < 0 && errno == EBUSY, "refuses a second owner");
	check(without_rawio(device) == EPERM, "refuses a start without CAP_SYS_RAWIO");
	state = state_of(device);
	check(state.version == BLOCKSYS_VERSION && state.longest && state.share && !state.running,
	      "reports its limits: %llu ns, %u %%", (unsigned long long)state.longest, state.share);

	plan = good; plan.length = 0;
	refused(device, "a length of zero", plan, EINVAL);
	plan = good; plan.count = 0;
	refused(device, "a count of zero", plan, EINVAL);
	plan = good; plan.flags = 0x80;
	refused(device, "unknown flags", plan, EINVAL);
	plan = good; plan.reserved = 1;
	refused(device, "a reserved field", plan, EINVAL);
	plan = good; plan.length = state.longest + 1; plan.pause = 3600000 * MILLI;
	refused(device, "a block that is too long", plan, ERANGE);
	plan = good; plan.length = ~0ULL;
	refused(device, "an absurd length", plan, ERANGE);
	plan = good; plan.count = state.most_blocks + 1;
	refused(device, "too many blocks", plan, ERANGE);
	plan = good; plan.pause = 0;
	refused(device, "no pause", plan, ERANGE);
	plan = good; plan.pause = ~0ULL;
	refused(device, "an absurd pause", plan, ERANGE);
	plan = good; plan.pause = plan.length / 2;
	refused(device, "too large a share of the time", plan, ERANGE);
	plan = good; plan.cpus = (uintptr_t)none;
	refused(device, "no CPU", plan, EINVAL);
	plan = good; plan.cpus_bytes = 0;
	refused(device, "an empty mask", plan, EINVAL);
	plan = good; plan.cpus = 0;
	refused(device, "a mask at no address", plan, EFAULT);
	beyond[100] = 1;
	plan = good; plan.cpus = (uintptr_t)beyond;
	refused(device, "a CPU that does not exist", plan, ENODEV);
	beyond[100] = 0;
	beyond[0] = 2;
	beyond[7] = 0x80;
	refused(device, "CPU 1, and CPU 63 that does not exist", plan, ENODEV);
	check(ioctl(device, BLOCKSYS_START, NULL) && errno == EFAULT, "refuses no plan");
	check(ioctl(device, _IO(0xb5, 77)) && errno == ENOTTY, "refuses an unknown request");
	check(read(device, &record, sizeof(record) - 1) < 0 && errno == EINVAL,
	      "refuses to give a part of a record");
	check(read(device, &record, sizeof(record)) == 0, "has no records before a start");
	check(ioctl(device, BLOCKSYS_STOP) == 0, "can be stopped when nothing runs");

	good.count = 1000;
	good.pause = 100 * MILLI;
	check(ioctl(device, BLOCKSYS_START, &good) == 0, "starts");
	second = fcntl(device, F_SETFL, O_NONBLOCK);
	check(!second && read(device, &record, sizeof(record)) < 0 && errno == EAGAIN,
	      "does not wait for records where that is not wanted");
	refused(device, "a second start", good, EBUSY);
	check(ioctl(device, BLOCKSYS_STOP) == 0 && state_of(device).running == 0, "stops");
	state = state_of(device);
	check(state.made + state.skipped == 1000 && state.skipped,
	      "counts skipped blocks: %llu made, %llu skipped",
	      (unsigned long long)state.made, (unsigned long long)state.skipped);
	close(device);
}

/* Checks the blocks of a plan, and returns the shortest and longest. */
static void run(struct blocksys_plan plan, int cpus, const char *name)
{
	struct blocksys_record record[7], last[2] = { 0 };
	unsigned long seen = 0, disorder = 0, apart = 0, wrong = 0;
	__u64 shortest = ~0ULL, longest = 0, total = (__u64)plan.count * cpus;
	int device = open_device(O_NONBLOCK);
	ssize_t got = 0;

	if (ioctl(device, BLOCKSYS_START, &plan)) {
		check(0, "%s: starts: %s", name, strerror(errno));
		close(device);
		return;
	}
	for (;;) {
		struct pollfd polled = { .fd = device, .events = POLLIN };
		ssize_t index;

		if (poll(&polled, 1, 10000) != 1) {
			check(0, "%s: poll reports records", name);
			break;
		}
		got = read(device, record, sizeof(record));
		if (got <= 0)
			break;
		for (index = 0; index < got / (ssize_t)sizeof(*record); index++) {
			struct blocksys_record *now = record + index;
			int bit = mask[now->cpu / 8] >> (now->cpu % 8) & 1;
			int slot = cpus > 1 && now->cpu % 2;
			__u64 length = now->end - now->start;

			/* The blocks of a CPU are ordered and do not overlap. */
			if (!bit || now->flags || now->reserved || now->start < now->planned ||
			    now->end_counter <= now->start_counter)
				wrong++;
			if (seen >= (unsigned long)cpus &&
			    (now->sequence != last[slot].sequence + 1 ||
			     now->start < last[slot].end))
				disorder++;
			if (cpus > 1 && seen > 1 && last[!slot].sequence == now->sequence &&
			    last[!slot].planned != now->planned)
				apart++;
			last[slot] = *now;
			shortest = length < shortest ? length : shortest;
			longest = length > longest ? length : longest;
			seen++;
		}
	}
	check(got == 0 && seen == total, "%s: %lu of %llu blocks", name, seen,
	      (unsigned long long)total);
	check(!wrong && !disorder, "%s: the records are in order (%lu wrong, %lu out of order)",
	      name, wrong, disorder);
	check(!apart, "%s: all CPUs at the same moments (%lu not)", name, apart);
	check(shortest >= plan.length, "%s: no block is shorter than requested: %llu to %llu ns", name,
	      (unsigned long long)shortest, (unsigned long long)longest);
	close(device);
}

static void blocks(int cpu, int other)
{
	struct blocksys_plan plan = plan_for(cpu, -1);

	run(plan, 1, "one CPU");
	plan.flags = BLOCKSYS_RANDOM;
	run(plan, 1, "at random");
	plan = plan_for(cpu, other);
	plan.flags = BLOCKSYS_RANDOM;
	run(plan, 2, "two CPUs");
	plan = plan_for(cpu, -1);
	plan.length = 100000;
	plan.pause = 100000;
	plan.count = 2000;
	run(plan, 1, "short and many");
}

static __u64 now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void stop_cuts(int cpu)
{
	struct blocksys_plan plan = plan_for(cpu, -1);
	struct blocksys_record record;
	int device = open_device(0), cut = 0, tries;

	plan.length = 90 * MILLI;
	plan.pause = 100 * MILLI;
	plan.count = 5;
	/* Repeated if the stop falls into a pause. */
	for (tries = 0; tries < 20 && !cut; tries++) {
		if (ioctl(device, BLOCKSYS_START, &plan))
			break;
		usleep(130000 + tries * 5000);
		ioctl(device, BLOCKSYS_STOP);
		while (read(device, &record, sizeof(record)) > 0)
			cut |= record.flags == BLOCKSYS_CUT &&
			       record.end - record.start < plan.length;
	}
	check(cut, "a stop cuts the current block, and its record shows it");
	plan.count = 1000;
	ioctl(device, BLOCKSYS_START, &plan);
	close(device);
	device = open_device(0);
	check(device >= 0 && state_of(device).running == 0, "closing ends all blocks");
	check(read(device, &record, sizeof(record)) == 0, "the next owner reads no records of the last");
	close(device);
}

static int set_online(int cpu, int online)
{
	char path[80];
	int file, good;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	file = open(path, O_WRONLY);
	good = file >= 0 && write(file, online ? "1" : "0", 1) == 1;
	close(file);
	return good;
}

static void hotplug(int cpu, int other)
{
	struct blocksys_plan plan = plan_for(cpu, other);
	struct blocksys_record record;
	struct blocksys_state state = { 0 };
	__u64 end = now_ns() + 15000 * MILLI;
	unsigned int rounds = 0, wrong = 0;
	int device = open_device(0);

	check(set_online(cpu, 0), "CPU %d goes offline", cpu);
	refused(device, "an offline CPU", plan, ENODEV);
	check(set_online(cpu, 1), "CPU %d comes online", cpu);

	/* One goes offline and online repeatedly while both are stopped. */
	plan.length = 1 * MILLI;
	plan.pause = 1 * MILLI;
	plan.count = 100000;
	while (now_ns() < end && rounds < 40) {
		if (ioctl(device, BLOCKSYS_START, &plan))
			wrong++;
		usleep(rounds * 997 % 20000);
		if (!set_online(cpu, 0) || state_of(device).running != 1)
			wrong++;
		if (!set_online(cpu, 1))
			wrong++;
		ioctl(device, BLOCKSYS_STOP);
		state = state_of(device);
		if (state.running || state.made + state.skipped != 2ULL * plan.count)
			wrong++;
		/* If a timer loses its CPU, no other CPU is stopped instead. */
		while (read(device, &record, sizeof(record)) > 0)
			wrong += (int)record.cpu != cpu && (int)record.cpu != other;
		rounds++;
	}
	check(rounds && !wrong, "survives CPU hotplug: %u rounds, %u wrong", rounds, wrong);
	close(device);
}

static void hold(int cpu)
{
	struct blocksys_plan plan = plan_for(cpu, -1);
	int device = open_device(0);

	plan.count = 1000000;
	if (device < 0 || ioctl(device, BLOCKSYS_START, &plan)) {
		perror("hold");
		exit(1);
	}
	puts("holding");
	fflush(stdout);
	pause();
}

int main(int count, char **words)
{
	if (count == 3 && !strcmp(words[1], "hold")) {
		hold(atoi(words[2]));
	} else if (count == 4 && !strcmp(words[1], "all")) {
		int cpu = atoi(words[2]), other = atoi(words[3]);

		refusals(cpu);
		blocks(cpu, other);
		stop_cuts(cpu);
		hotplug(cpu, other);
		printf("%d failed\n", failures);
	} else {
		fputs("usage: blocksys-test all CPU OTHER_CPU | hold CPU\n", stderr);
		return 2;
	}
	return failures != 0;
}
