// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests /dev/rampart-detach and librampart-detach on the running machine, which
 * must be a simulated one. Build it static, as root, with the module loaded:
 *
 *   detach-test all CPU            every case but the next six
 *   detach-test ends CPU           what ends the holder of a CPU; also writes /tmp/core
 *   detach-test guest CPU          a guest of KVM in the process
 *   detach-test repeat CPU COUNT   takes, uses and gives back
 *   detach-test restored CPU       compares model-specific registers, by /dev/cpu/CPU/msr
 *   detach-test fuzz CPU COUNT SEED  random instructions and registers
 *   detach-test kexec KERNEL INITRAMFS COMMAND-LINE
 *                                  boots another kernel, whatever is taken
 *
 * Prints a line for each case, as tests/src/guest_cases.rs describes; exits 1 if any failed.
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

/* Prints the line of a case; tests/src/guest_cases.rs has its form. A case may have several lines. */
__attribute__((format(printf, 3, 4)))
static void check_seen(const char *name, int good, const char *format, ...)
{
	va_list arguments;

	printf("case %s %s: ", name, good ? "passed" : "failed");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
	failures += !good;
}

static void check(const char *name, int good)
{
	int error = errno;

	if (good)
		check_seen(name, 1, "yes");
	else
		check_seen(name, 0, "no; the last error is %d (%s)", error, strerror(error));
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

	check("the_state_can_be_read", !ioctl(file, RAMPART_DETACH_STATE, &state));
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

	check("a_taken_cpu_is_not_taken_twice",
	      refused(ioctl(other, RAMPART_DETACH_TAKE, cpu), EBUSY));
	check("a_file_has_one_cpu", refused(ioctl(device, RAMPART_DETACH_TAKE, cpu + 1), EBUSY));
	check("cpu_4000_is_refused", refused(ioctl(other, RAMPART_DETACH_TAKE, 4000), ENODEV));
	check("cpu_minus_1_is_refused", refused(ioctl(other, RAMPART_DETACH_TAKE, -1), ENODEV));
	check("giving_without_a_cpu_is_refused",
	      refused(ioctl(other, RAMPART_DETACH_GIVE), ENXIO));
	check("running_without_a_cpu_is_refused",
	      refused(ioctl(other, RAMPART_DETACH_RUN, &run), ENXIO));
	check("unknown_flags_are_refused",
	      refused(ioctl(device, RAMPART_DETACH_RUN, &run), EINVAL));
	run.flags = 0;
	run.bytes = 8192;
	check("running_is_refused_while_not_detached",
	      refused(ioctl(device, RAMPART_DETACH_RUN, &run), EINVAL));
	run.flags = RAMPART_DETACH_BEGIN;
	*pc_of(&run.registers) = 0xffff800000000000;
	check("no_run_begins_at_a_kernel_address",
	      can_begin_anywhere || refused(ioctl(device, RAMPART_DETACH_RUN, &run), EINVAL));
	check("a_run_without_memory_is_refused",
	      refused(ioctl(device, RAMPART_DETACH_RUN, 8), EFAULT));
	check("leaving_is_refused_while_not_detached",
	      refused(ioctl(device, RAMPART_DETACH_LEAVE), EINVAL));
	check("an_unknown_request_is_refused", refused(ioctl(device, 0xb6ff), ENOTTY));
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	file = open(path, O_WRONLY);
	check("writing_online_is_refused", refused(write(file, "1", 1), EBUSY));
	close(file);
	file = open("/sys/power/state", O_WRONLY);
	check("suspending_is_refused", refused(write(file, "freeze", 6), EBUSY));
	close(file);
	check("the_cpu_is_taken",
	      state_of(device).cpu == cpu && state_of(device).state == RAMPART_DETACH_TAKEN);
	check("another_file_has_no_cpu", state_of(other).cpu == -1);
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

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void own_cpu(const void *argument)
{
	int other = open_device(), cpu = *(const int *)argument, turn;
	uint64_t begin;

	if (setgid(NOBODY) || setuid(NOBODY))
		_exit(2);
	close(other);
	other = open_device();
	if (other < 0 || !refused(ioctl(other, RAMPART_DETACH_TAKE, cpu - 2), EPERM))
		_exit(4);
	for (turn = 0; turn < 30; turn++) {
		begin = now_ns();
		if (ioctl(other, RAMPART_DETACH_TAKE, cpu) || ioctl(other, RAMPART_DETACH_GIVE))
			_exit(3);
		if (ioctl(other, RAMPART_DETACH_TAKE, cpu))
			_exit(errno == EAGAIN ? 0 : 5);
		/* On a slow machine the second is over, and nothing was seen. */
		if (now_ns() - begin < 1000000000)
			_exit(6);
		if (ioctl(other, RAMPART_DETACH_GIVE))
			_exit(7);
		usleep(1100000);
	}
	_exit(8);
}

static void test_owner(int cpu)
{
	static const char path[] = "/sys/devices/virtual/misc/rampart-detach/owners";
	int file = open(path, O_WRONLY), status;
	char owner[32];

	snprintf(owner, sizeof(owner), "%d:%d", ++cpu, NOBODY);
	check("a_cpu_has_an_owner", write(file, owner, strlen(owner)) > 0);
	status = in_process(own_cpu, &cpu, 60000);
	check_seen("the_owner_takes_it_once_a_second_and_no_other", !status, "status %x", status);
	check("no_cpu_has_an_owner", write(file, "none", 4) == 4);
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

	check("a_function_with_system_calls_runs",
	      !rampart_run_detached(core, make_calls, &calls));
	check("a_detached_thread_is_the_same_thread",
	      calls.pid == getpid() && calls.tid == syscall(SYS_gettid));
	check_seen("sched_getcpu_names_the_taken_cpu", calls.real_cpu == cpu, "%d, expected %d",
		   calls.real_cpu, cpu);
	check("a_detached_thread_writes_and_reads_a_pipe", calls.piped == 8);
	check("a_detached_thread_touches_new_memory", calls.touched == 1024);
	check_seen("a_detached_thread_formats_numbers", !strcmp(calls.text, "7 1.500"), "%s",
		   calls.text);
	check("counts_can_be_read", !rampart_detached_counts(core, &counts));
	check_seen("system_calls_and_faults_are_counted",
		   counts.system_calls > 5 && counts.faults >= 1024 && !counts.interrupts,
		   "%llu calls, %llu faults", (unsigned long long)counts.system_calls,
		   (unsigned long long)counts.faults);
	check("a_thread_is_attached_again_after_its_function", sched_getcpu() != cpu);
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
	for (turn = 0; turn < 60000 && !rampart_is_detached(core); turn++)
		usleep(1000);
	check("another_thread_is_refused_meanwhile", refused(rampart_detach(core), EBUSY));
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
	check_seen("no_replaced_page_is_stale", seen == REPLACED && !stale, "%d of %d", stale,
		   seen);
	check_seen("replaced_pages_are_flushed",
		   FLUSHES_BY_BROADCAST || state.flushes >= REPLACED / 2, "%llu flushes",
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
		check_seen("the_signal_has_the_right_registers", 0, "no signal");
		break;
	case SIGSEGV:
		check("the_signal_has_the_right_registers",
		      has_fault_registers(&at_signal, information_at_signal.si_addr));
		check("the_signal_has_the_right_vector_registers",
		      !memcmp(vector_at_signal, "vector register", 16));
		check("the_signal_attached_the_thread", !rampart_is_detached(core));
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

	for (turn = 0; turn < 60000 && (looping == before || !rampart_is_detached(core)); turn++)
		usleep(1000);
	child = fork();
	if (!child) {
		before = looping;
		usleep(100000);
		_exit(looping != before);
	}
	waitpid(child, &status, 0);
	before = looping;
	for (turn = 0; turn < 60000 && looping == before; turn++)
		usleep(1000);
	check_seen("a_child_has_a_copy_and_the_thread_goes_on", !status && looping != before, "%x",
		   status);
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
		for (turn = 0; turn < 60000 && looping == before; turn++)
			usleep(1000);
		pthread_kill(thread, SIGUSR1);
		for (turn = 0; turn < 60000 && signals < number; turn++)
			usleep(1000);
	}
	test_copy();
	stop_looping = 1;
	pthread_join(thread, &consistent);
	check_seen("every_signal_is_handled", signals == 20, "%d of 20", (int)signals);
	check_seen("a_thread_detaches_again_after_a_signal", detached_again >= 2 && consistent,
		   "%d times", detached_again);
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
		status = in_process(act, action, action->endless ? 100 : 60000);
		check_seen(action->name,
			   (status == -1) == action->endless && status != 99 << 8 && serves(),
			   "%s %d", WIFSIGNALED(status) ? "signal" : "exit",
			   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	status = in_process(numbers_refused, NULL, 60000);
	check("every_system_call_can_be_refused", !status && serves());
	status = in_process(numbers_proxied, NULL, 60000);
	check_seen("every_system_call_can_be_proxied", !status && serves(), "%x", status);
}

#include "random.h"

static int run_all(int cpu)
{
	struct pollfd poller = { .fd = open_device(), .events = POLLIN };
	int error = take(cpu);

	check_seen("a_cpu_is_taken", !error, "CPU %d: %s", cpu, strerror(error));
	if (error)
		return 1;
	check("poll_reports_the_take", poll(&poller, 1, 60000) == 1 && poller.revents & POLLIN);
	check("a_function_runs", serves());
	test_refusals(cpu);
	check("a_descriptor_is_enough_to_detach", !in_process(as_nobody, NULL, 60000));
	test_owner(cpu);
	test_calls(cpu);
	test_coherence();
	test_registers();
	test_state(cpu);
	test_signals();
	test_stop();
	test_hostile();
	check("no_flag_masks_interrupts", in_process(run_all_flags, NULL, 500) == -1 && serves());
	test_fuzz(30, 1);
	check("no_interrupt_arrived", !state_of(device).interrupts);
	check("the_cpu_is_given_back", !ioctl(device, RAMPART_DETACH_GIVE));
	check("the_file_has_no_cpu", state_of(device).cpu == -1);
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
			check_seen("a_cpu_is_taken_and_given_back_again", 0,
				   "turn %d: not taken: %s", one, strerror(errno));
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
	check_seen("a_cpu_is_taken_and_given_back_again", !bad, "%d times", times);
}

static int run_kexec(const char *kernel, const char *archive, const char *command_line)
{
	if (load_kernel(kernel, archive, command_line))
		check_seen("another_kernel_is_booted", 0, "not loaded: %s", strerror(errno));
	else if (reboot(0x45584543 /* LINUX_REBOOT_CMD_KEXEC */))
		check_seen("another_kernel_is_booted", 0, "not booted: %s", strerror(errno));
	return 1;
}

int main(int arguments, char **argument)
{
	int cpu = arguments > 2 ? atoi(argument[2]) : 0;

	if (arguments == 3 && !strcmp(argument[1], "all")) {
		run_all(cpu);
	} else if (arguments == 3 && !strcmp(argument[1], "ends")) {
		test_ends(cpu);
	} else if (arguments == 3 && !strcmp(argument[1], "guest")) {
		test_guest(cpu);
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
		fprintf(stderr, "usage: detach-test all CPU | ends CPU | guest CPU | repeat CPU COUNT |"
			" restored CPU | fuzz CPU COUNT SEED | kexec KERNEL INITRAMFS COMMAND-LINE\n");
		return 2;
	}
	printf("%d failed\n", failures);
	return failures ? 1 : 0;
}
