// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests /dev/rampart-detach and librampart-detach on the running machine, which
 * must be a simulated one. Build it static, as root, with the module loaded:
 *
 *   detach-test all CPU            every check but the next five
 *   detach-test ends CPU           what ends the holder of a CPU; also writes /tmp/core
 *   detach-test repeat CPU COUNT   takes, uses and gives back
 *   detach-test restored CPU       compares model-specific registers, by /dev/cpu/CPU/msr
 *   detach-test fuzz CPU COUNT SEED  random instructions and registers
 *   detach-test kexec KERNEL INITRAMFS COMMAND-LINE
 *                                  boots another kernel, whatever is taken
 *
 * Prints a line for each check; exits 1 if any failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "detached.h"
#include "rampart-detach.h"
#include "hostile.h"
#ifdef __x86_64__
#include "machine-x86_64.h"
#else
#include "machine-aarch64.h"
#endif

#define NOBODY 65534

static int failures;
static int device = -1;
static struct rampart_detached *core;

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

static int open_device(void)
{
	return open("/dev/rampart-detach", O_RDWR);
}

/* Takes the CPU and returns 0 or an error number. */
static int take(int cpu)
{
	device = open_device();
	if (device < 0 || ioctl(device, RAMPART_DETACH_TAKE, cpu)) {
		int error = errno;

		close(device);
		return error;
	}
	core = rampart_detached_from_descriptor(device);
	return core ? 0 : errno;
}

static int refused(long result, int error)
{
	return result == -1 && errno == error;
}

static struct rampart_detach_state state_of(int file)
{
	struct rampart_detach_state state = { 0 };

	check(!ioctl(file, RAMPART_DETACH_STATE, &state), "the state can be read");
	return state;
}

static void count(void *argument)
{
	*(volatile int *)argument += rampart_is_detached(core);
}

/* Returns whether a function runs on the CPU. */
static int serves(void)
{
	struct rampart_detach_state state;
	int done = 0;

	if (ioctl(device, RAMPART_DETACH_STATE, &state) || state.interrupts)
		return 0;
	return !rampart_run_detached(core, count, &done) && done == 1;
}

/* Runs a function in a process of its own. Returns its status, or -1 if it had to be killed. */
static int in_process(void (*run)(const void *argument), const void *argument, int milliseconds)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	pid_t child = fork();
	int status, turn;

	if (!child) {
		run(argument);
		_exit(0);
	}
	for (turn = 0; turn < milliseconds / 2; turn++) {
		if (waitpid(child, &status, WNOHANG) == child)
			return status;
		nanosleep(&pause, NULL);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return -1;
}

static void test_refusals(int cpu)
{
	struct rampart_detach_run run = { .flags = 0x80 };
	char path[80];
	int other = open_device(), file;

	check(refused(ioctl(other, RAMPART_DETACH_TAKE, cpu), EBUSY), "a taken CPU is not taken twice");
	check(refused(ioctl(device, RAMPART_DETACH_TAKE, cpu + 1), EBUSY), "a file has one CPU");
	check(refused(ioctl(other, RAMPART_DETACH_TAKE, 4000), ENODEV), "no CPU 4000");
	check(refused(ioctl(other, RAMPART_DETACH_TAKE, -1), ENODEV), "no CPU -1");
	check(refused(ioctl(other, RAMPART_DETACH_GIVE), ENXIO), "nothing to give");
	check(refused(ioctl(other, RAMPART_DETACH_RUN, &run), ENXIO), "nowhere to run");
	check(refused(ioctl(device, RAMPART_DETACH_RUN, &run), EINVAL), "unknown flags");
	run.flags = 0;
	run.bytes = 8192;
	check(refused(ioctl(device, RAMPART_DETACH_RUN, &run), EINVAL), "not detached");
	run.flags = RAMPART_DETACH_BEGIN;
	*pc_of(&run.registers) = 0xffff800000000000;
	check(can_begin_anywhere || refused(ioctl(device, RAMPART_DETACH_RUN, &run), EINVAL),
	      "not at a kernel address");
	check(refused(ioctl(device, RAMPART_DETACH_RUN, 8), EFAULT), "no memory");
	check(refused(ioctl(device, RAMPART_DETACH_LEAVE), EINVAL), "not detached, so not attached");
	check(refused(ioctl(device, 0xb6ff), ENOTTY), "an unknown request");
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	file = open(path, O_WRONLY);
	check(refused(write(file, "1", 1), EBUSY), "%s is refused", path);
	close(file);
	file = open("/sys/power/state", O_WRONLY);
	check(refused(write(file, "freeze", 6), EBUSY), "suspend is refused");
	close(file);
	check(state_of(device).cpu == cpu && state_of(device).state == RAMPART_DETACH_TAKEN,
	      "the CPU is taken");
	check(state_of(other).cpu == -1, "the other file has none");
	close(other);
}

static void as_nobody(const void *unused)
{
	int other = open_device(), done = 0, permitted;

	core = rampart_detached_from_descriptor(device);
	if (!core || setgid(NOBODY) || setuid(NOBODY))
		_exit(2);
	permitted = !refused(ioctl(other, RAMPART_DETACH_TAKE, 1), EPERM);
	if (permitted || rampart_run_detached(core, count, &done))
		_exit(3);
	_exit(done == 1 ? 0 : 4);
}

static void own_cpu(const void *argument)
{
	int other = open_device(), cpu = *(const int *)argument;

	if (setgid(NOBODY) || setuid(NOBODY))
		_exit(2);
	close(other);
	other = open_device();
	if (other < 0 || ioctl(other, RAMPART_DETACH_TAKE, cpu) || ioctl(other, RAMPART_DETACH_GIVE))
		_exit(3);
	/* Within a second. */
	_exit(refused(ioctl(other, RAMPART_DETACH_TAKE, cpu), EAGAIN) &&
	      refused(ioctl(other, RAMPART_DETACH_TAKE, cpu - 2), EPERM) ? 0 : 4);
}

static void test_owner(int cpu)
{
	static const char path[] = "/sys/devices/virtual/misc/rampart-detach/owners";
	int file = open(path, O_WRONLY), status;
	char owner[32];

	snprintf(owner, sizeof(owner), "%d:%d", ++cpu, NOBODY);
	check(write(file, owner, strlen(owner)) > 0, "a CPU has an owner");
	status = in_process(own_cpu, &cpu, 20000);
	check(!status, "the owner takes it once a second, and no other: status %x", status);
	check(write(file, "none", 4) == 4, "no CPU has an owner");
	close(file);
}

struct calls {
	int cpu;
	int pid, tid, piped, real_cpu, touched, written;
	char text[64];
};

static void make_calls(void *argument)
{
	struct calls *calls = argument;
	char *memory;
	int ends[2];

	calls->pid = getpid();
	calls->tid = syscall(SYS_gettid);
	calls->real_cpu = sched_getcpu();
	if (!pipe(ends) && write(ends[1], "detached", 8) == 8)
		calls->piped = read(ends[0], calls->text, sizeof(calls->text));
	memory = mmap(NULL, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* A fault for each page. */
	madvise(memory, 1 << 22, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < 1 << 22; at += 4096) {
		memory[at] = 1;
		calls->touched += memory[at];
	}
	munmap(memory, 1 << 22);
	calls->written = snprintf(calls->text, sizeof(calls->text), "%d %.3f", 7, 1.5);
	free(malloc(100000));
}

static void test_calls(int cpu)
{
	struct calls calls = { .cpu = cpu };
	struct rampart_counts counts = { 0 };

	check(!rampart_run_detached(core, make_calls, &calls), "runs with system calls");
	check(calls.pid == getpid() && calls.tid == syscall(SYS_gettid), "is the same thread");
	check(calls.real_cpu == cpu, "sched_getcpu() is %d, expected %d", calls.real_cpu, cpu);
	check(calls.piped == 8, "writes and reads a pipe");
	check(calls.touched == 1024, "touches new memory");
	check(!strcmp(calls.text, "7 1.500"), "formats numbers: %s", calls.text);
	check(!rampart_detached_counts(core, &counts), "counts can be read");
	check(counts.system_calls > 5 &&
	      counts.faults >= 1024 && !counts.interrupts, "counts: %llu calls, %llu faults",
	      (unsigned long long)counts.system_calls, (unsigned long long)counts.faults);
	check(sched_getcpu() != cpu, "is attached again");
}

static void give(void)
{
	rampart_detached_close(core);
	core = NULL;
}

#include "ends.h"
#include "state.h"

/* Another thread replaces pages under the detached one. */
static volatile int *volatile pages;
static volatile int replaced, seen, stale;

#define REPLACED 300

static void read_pages(void *unused)
{
	int turn;

	for (turn = 1; turn <= REPLACED; turn++) {
		while (replaced < turn)
			;
		stale += pages[(turn % 16) * 1024] != turn;
		seen = turn;
	}
}

static void *detached_reader(void *unused)
{
	rampart_run_detached(core, read_pages, NULL);
	return NULL;
}

static void test_coherence(void)
{
	struct rampart_detach_state state;
	pthread_t thread;
	char *pool;
	int turn;

	/* Other page frames than those that are replaced. */
	pool = mmap(NULL, (REPLACED + 1) * 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	pages = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	pthread_create(&thread, NULL, detached_reader, NULL);
	for (turn = 0; turn < 5000 && !rampart_is_detached(core); turn++)
		usleep(1000);
	check(refused(rampart_detach(core), EBUSY), "another thread is refused meanwhile");
	for (turn = 1; turn <= REPLACED; turn++) {
		int *page = (int *)&pages[(turn % 16) * 1024];

		*(int *)(pool + turn * 4096) = turn;
		if (mremap(pool + turn * 4096, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) !=
		    page)
			break;
		replaced = turn;
		while (seen < turn)
			sched_yield();
	}
	pthread_join(thread, NULL);
	state = state_of(device);
	check(seen == REPLACED && !stale, "%d of %d replaced pages are stale", stale, seen);
	check(FLUSHES_BY_BROADCAST || state.flushes >= REPLACED / 2, "%llu flushes",
	      (unsigned long long)state.flushes);
}

static sigjmp_buf back;
static ucontext_t at_signal;
static siginfo_t information_at_signal;
static unsigned char vector_at_signal[16];
static volatile sig_atomic_t signals;

static void on_signal(int number, siginfo_t *information, void *context)
{
	memcpy(&at_signal, context, sizeof(at_signal));
	information_at_signal = *information;
	memcpy(vector_at_signal, vector_5_of(context), 16);
	siglongjmp(back, number);
}

static void test_registers(void)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, NULL);
	switch (sigsetjmp(back, 1)) {
	case 0:
		rampart_run_detached(core, fault_with_registers, NULL);
		check(0, "a fault is a signal");
		break;
	case SIGSEGV:
		check(has_fault_registers(&at_signal, information_at_signal.si_addr),
		      "the signal has the right registers");
		check(!memcmp(vector_at_signal, "vector register", 16),
		      "the signal has the right vector registers");
		check(!rampart_is_detached(core), "the signal attached the thread");
		break;
	}
	signal(SIGSEGV, SIG_DFL);
}

static void on_user_signal(int number)
{
	signals++;
}

#include "guest.h"

static volatile int looping, stop_looping, detached_again;

static void *looper(void *unused)
{
	double sum = 0;

	while (!stop_looping) {
		if (!rampart_is_detached(core) && !rampart_detach(core))
			detached_again++;
		sum += 1;
		looping++;
	}
	rampart_reattach(core);
	return (void *)(uintptr_t)(sum == looping);
}

/* The other thread of a process that forks: what it writes then is not the child's. */
static void test_copy(void)
{
	int before = looping, status, turn;
	pid_t child;

	for (turn = 0; turn < 5000 && (looping == before || !rampart_is_detached(core)); turn++)
		usleep(1000);
	child = fork();
	if (!child) {
		before = looping;
		usleep(100000);
		_exit(looping != before);
	}
	waitpid(child, &status, 0);
	before = looping;
	for (turn = 0; turn < 5000 && looping == before; turn++)
		usleep(1000);
	check(!status && looping != before, "a child has a copy, and the thread goes on: %x", status);
}

static void test_signals(void)
{
	struct sigaction action = { .sa_handler = on_user_signal };
	void *consistent = NULL;
	pthread_t thread;
	int number, turn, before;

	sigaction(SIGUSR1, &action, NULL);
	signals = 0;
	pthread_create(&thread, NULL, looper, NULL);
	for (number = 1; number <= 20; number++) {
		before = looping;
		for (turn = 0; turn < 5000 && looping == before; turn++)
			usleep(1000);
		pthread_kill(thread, SIGUSR1);
		for (turn = 0; turn < 5000 && signals < number; turn++)
			usleep(1000);
	}
	test_copy();
	stop_looping = 1;
	pthread_join(thread, &consistent);
	check(signals == 20, "%d of 20 signals are handled", (int)signals);
	check(detached_again >= 2 && consistent, "detached again %d times", detached_again);
}

static void numbers_refused(const void *unused)
{
	long number, result, wrong = 0;

	rampart_detached_on_system_calls(core, RAMPART_REFUSED);
	if (rampart_detach(core))
		_exit(2);
	for (number = -1024; number < 2048; number++) {
		result = call_without_library(number, 0, 0, 0);
		wrong += result != -ENOSYS;
	}
	rampart_reattach(core);
	_exit(wrong ? 1 : 0);
}

/* Every call that can return, with arguments that are none. */
static void numbers_proxied(const void *unused)
{
	static const int excluded[] = {
		SYS_rt_sigreturn, SYS_clone, SYS_exit, SYS_exit_group, SYS_clone3, SYS_vhangup,
		MACHINE_CALLS_EXCLUDED
	};
	int number;
	size_t one;

	if (rampart_detach(core))
		_exit(2);
	for (number = 0; number < 600; number++) {
		for (one = 0; one < sizeof(excluded) / sizeof(*excluded); one++)
			if (excluded[one] == number)
				break;
		if (one < sizeof(excluded) / sizeof(*excluded))
			continue;
		if (!rampart_is_detached(core) && rampart_detach(core))
			_exit(3);
		syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
	}
	rampart_reattach(core);
	_exit(0);
}

static void act(const void *argument)
{
	const struct action *action = argument;

	if (action->change)
		prepare_change(action->change);
	alarm(0);
	if (rampart_detach(core))
		_exit(99);
	action->run();
	_exit(0);
}

static int has_in_cpuinfo(const char *word)
{
	static char text[16384];
	int file = open("/proc/cpuinfo", O_RDONLY);
	ssize_t bytes = read(file, text, sizeof(text) - 1);

	close(file);
	return bytes > 0 && strstr(text, word);
}

static void test_hostile(void)
{
	int smap = has_in_cpuinfo(" smap "), status;
	size_t one;

	for (one = 0; one < sizeof(actions) / sizeof(*actions); one++) {
		const struct action *action = &actions[one];

		if (smap && action->without_smap)
			continue;
		status = in_process(act, action, action->endless ? 100 : 20000);
		check((status == -1) == action->endless && status != 99 << 8 && serves(),
		      "%s: %s %d", action->name, WIFSIGNALED(status) ? "signal" : "exit",
		      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	status = in_process(numbers_refused, NULL, 60000);
	check(!status && serves(), "every system call can be refused");
	status = in_process(numbers_proxied, NULL, 60000);
	check(!status && serves(), "every system call can be proxied: %x", status);
}

/* The reader of the output sees that the program continues. */
static void report_progress(int done)
{
	if (done % 100 == 99) {
		printf("%d done\n", done + 1);
		fflush(stdout);
	}
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t value = *state += 0x9e3779b97f4a7c15;

	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

/*
 * Without libraries: registers and instructions are random, also the register that points to
 * the C library's memory of the thread, which stays as the program left it.
 */
static void run_random(const void *argument)
{
	uint64_t state = *(const uint64_t *)argument;
	struct rampart_detach_run run = { .flags = RAMPART_DETACH_BEGIN, .fcw = INITIAL_FCW };
	uint64_t *registers = (uint64_t *)&run.registers;
	unsigned char *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static unsigned char extended[4096] __attribute__((aligned(64)));
	size_t one;
	long result;
	int turn;

	for (one = 0; one < 8192; one++)
		code[one] = next_random(&state);
	for (one = 0; one < sizeof(run.registers) / 8; one++) {
		registers[one] = next_random(&state);
		if (next_random(&state) % 2)
			registers[one] = (uintptr_t)code + next_random(&state) % 8192;
	}
	run.mxcsr = next_random(&state);
	make_instructions(code, 8192);
	run.buffer = (uintptr_t)extended;
	run.bytes = sizeof(extended);
	for (turn = 0; turn < 50; turn++) {
		*pc_of(&run.registers) = (uintptr_t)code + next_random(&state) % 8192 / PC_STEP * PC_STEP;
		result = call_without_library(SYS_ioctl, device, RAMPART_DETACH_RUN, (long)&run);
		if (result)
			_exit(result == -EINVAL ? 0 : 98);
		run.flags = run.exit == RAMPART_DETACH_SYSTEM_CALL ? 0 : RAMPART_DETACH_BEGIN;
		*result_of(&run.registers) = next_random(&state);
	}
}

/* An endless loop with every flag of the processor's state. */
static void run_all_flags(const void *unused)
{
	struct rampart_detach_run run = { .flags = RAMPART_DETACH_BEGIN, .fcw = INITIAL_FCW };
	static unsigned char extended[4096] __attribute__((aligned(64)));
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(code, endless_code, sizeof(endless_code));
	__builtin___clear_cache(code, code + sizeof(endless_code));
	*pc_of(&run.registers) = (uintptr_t)code;
	*flags_of(&run.registers) = ~0ULL;
	run.buffer = (uintptr_t)extended;
	run.bytes = sizeof(extended);
	ioctl(device, RAMPART_DETACH_RUN, &run);
	_exit(98);
}

static void test_fuzz(int times, uint64_t seed)
{
	int bad = 0, one, status;

	for (one = 0; one < times; one++) {
		uint64_t this = seed + one;

		report_progress(one);
		status = in_process(run_random, &this, 200);
		if (status > 0 || !serves()) {
			check(0, "seed %llu: status %x", (unsigned long long)this, status);
			bad++;
		}
	}
	check(!bad, "%d random programs", times);
}

static int run_all(int cpu)
{
	struct pollfd poller = { .fd = open_device(), .events = POLLIN };
	int error = take(cpu);

	check(!error, "CPU %d is taken: %s", cpu, strerror(error));
	if (error)
		return 1;
	check(poll(&poller, 1, 5000) == 1 && poller.revents & POLLIN, "poll reports the take");
	check(serves(), "a function runs");
	test_refusals(cpu);
	check(!in_process(as_nobody, NULL, 20000), "a descriptor is enough to detach");
	test_owner(cpu);
	test_calls(cpu);
	test_coherence();
	test_registers();
	test_state(cpu);
	test_signals();
	test_guest(cpu);
	test_stop();
	test_hostile();
	check(in_process(run_all_flags, NULL, 500) == -1 && serves(), "no flag masks interrupts");
	test_fuzz(30, 1);
	check(!state_of(device).interrupts, "no interrupt arrived");
	check(!ioctl(device, RAMPART_DETACH_GIVE), "the CPU is given back");
	check(state_of(device).cpu == -1, "the file has no CPU");
	give();
	return 0;
}

static void run_repeat(int cpu, int times)
{
	int one, bad = 0;

	for (one = 0; one < times; one++) {
		cpu_set_t set;

		report_progress(one);
		if (take(cpu)) {
			check(0, "turn %d: not taken: %s", one, strerror(errno));
			return;
		}
		bad += !serves();
		give();
		/* Linux uses it. */
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		bad += sched_setaffinity(0, sizeof(set), &set) || sched_getcpu() != cpu;
		memset(&set, 0xff, sizeof(set));
		sched_setaffinity(0, sizeof(set), &set);
	}
	check(!bad, "taken and given back %d times", times);
}

static int run_kexec(const char *kernel, const char *archive, const char *command_line)
{
	if (load_kernel(kernel, archive, command_line))
		check(0, "the kernel is not loaded: %s", strerror(errno));
	else if (reboot(0x45584543 /* LINUX_REBOOT_CMD_KEXEC */))
		check(0, "the kernel is not booted: %s", strerror(errno));
	return 1;
}

int main(int arguments, char **argument)
{
	int cpu = arguments > 2 ? atoi(argument[2]) : 0;

	if (arguments == 3 && !strcmp(argument[1], "all")) {
		run_all(cpu);
	} else if (arguments == 3 && !strcmp(argument[1], "ends")) {
		test_ends(cpu);
	} else if (arguments == 4 && !strcmp(argument[1], "repeat")) {
		run_repeat(cpu, atoi(argument[3]));
	} else if (arguments == 3 && !strcmp(argument[1], "restored")) {
		run_restored(cpu);
	} else if (arguments == 5 && !strcmp(argument[1], "fuzz")) {
		if (take(cpu))
			return 1;
		test_fuzz(atoi(argument[3]), strtoull(argument[4], NULL, 10));
		give();
	} else if (arguments == 5 && !strcmp(argument[1], "kexec")) {
		return run_kexec(argument[2], argument[3], argument[4]);
	} else {
		fprintf(stderr, "usage: detach-test all CPU | ends CPU | repeat CPU COUNT | restored CPU |"
			" fuzz CPU COUNT SEED | kexec KERNEL INITRAMFS COMMAND-LINE\n");
		return 2;
	}
	printf("%d failed\n", failures);
	return failures ? 1 : 0;
}
