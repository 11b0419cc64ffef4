/* SPDX-License-Identifier: GPL-2.0-only */
/* Whatever ends the holder of a CPU, Linux has the CPU again; what stops it, stops it there. */
#ifndef ENDS_H
#define ENDS_H

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

/* What the holder shares with this process. */
struct shared {
	volatile unsigned long turns;
	volatile pid_t thread;
	volatile pid_t heir;
	int cpu;
};

static struct shared *shared;
/* The case that runs. */
static const char *end_name;

static void *loop_again(void *unused)
{
	shared->thread = syscall(SYS_gettid);
	for (;;) {
		/* A debugger attaches the thread. */
		if (!rampart_is_detached(core))
			rampart_detach(core);
		shared->turns++;
	}
	return NULL;
}

static void wait_for_ever(void)
{
	for (;;)
		pause();
}

static void exit_process(void)
{
	_exit(0);
}

static void execute_other(void)
{
	execl("/bin/sleep", "sleep", "1000", NULL);
}

static void leave_heir(void)
{
	pid_t heir = fork();

	if (!heir)
		wait_for_ever();
	shared->heir = heir;
	wait_for_ever();
}

static int moves(void)
{
	unsigned long before = shared->turns;
	int turn;

	for (turn = 0; turn < 60000 && shared->turns == before; turn++)
		usleep(1000);
	return shared->turns != before;
}

static int is_online(int cpu)
{
	char path[80], text = 0;
	int file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	file = open(path, O_RDONLY);
	if (read(file, &text, 1) != 1)
		text = 0;
	close(file);
	return text == '1';
}

static int is_given_back(int cpu)
{
	int turn;

	for (turn = 0; turn < 6000 && !is_online(cpu); turn++)
		usleep(10000);
	return is_online(cpu);
}

static void kill_holder(pid_t holder)
{
	kill(holder, SIGKILL);
}

/* The other program does not get the CPU. */
static void wait_and_kill(pid_t holder)
{
	check("the_cpu_is_given_back_before_the_other_program_ends", is_given_back(shared->cpu));
	kill(holder, SIGKILL);
}

static void stop_and_kill(pid_t holder)
{
	int status;

	kill(holder, SIGSTOP);
	waitpid(holder, &status, WUNTRACED);
	kill(holder, SIGKILL);
}

static void quit_holder(pid_t holder)
{
	kill(holder, SIGQUIT);
}

static int interrupt_by_debugger(pid_t thread)
{
	static char registers[1024];
	struct iovec all = { registers, sizeof(registers) };
	int status;

	return !ptrace(PTRACE_SEIZE, thread, 0, 0) && !ptrace(PTRACE_INTERRUPT, thread, 0, 0) &&
	       waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status) &&
	       !ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &all);
}

static void debug_and_kill(pid_t holder)
{
	unsigned long value;
	int status;

	check_seen("a_debugger_stops_the_thread", interrupt_by_debugger(shared->thread),
		   "and reads registers");
	value = shared->turns;
	usleep(50000);
	check("a_debugger_stops_the_thread", value == shared->turns);
	check("the_thread_goes_on_without_a_debugger",
	      !ptrace(PTRACE_DETACH, shared->thread, 0, 0) && moves());
	check("the_debugger_has_no_cpu", state_of(device).cpu == -1);
	check_seen("a_debugger_stops_the_thread", interrupt_by_debugger(shared->thread), "again");
	kill(holder, SIGKILL);
	waitpid(shared->thread, &status, __WALL);
}

static int write_to(const char *path, const char *text)
{
	int file = open(path, O_WRONLY), good = write(file, text, strlen(text)) > 0;

	close(file);
	return good;
}

static void run_out_of_memory(pid_t holder)
{
	char path[64];

	/* Linux ends the process with the highest score. */
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", holder);
	check_seen(end_name, write_to(path, "1000") && write_to("/proc/sysrq-trigger", "f"),
		   "%s is written", path);
}

static void loop_for_ever(void *counter)
{
	for (;;)
		++*(volatile unsigned long *)counter;
}

#define GROUP "/sys/fs/cgroup/frozen"

/* The process then continues under Linux, or is stopped again. */
static void test_freezer(pid_t child, volatile unsigned long *counter)
{
	unsigned long value;
	char number[16];
	int turn;

	snprintf(number, sizeof(number), "%d", child);
	mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL);
	mkdir(GROUP, 0700);
	check("a_control_group_is_frozen",
	      write_to(GROUP "/cgroup.procs", number) && write_to(GROUP "/cgroup.freeze", "1"));
	usleep(100000);
	value = *counter;
	usleep(100000);
	check("the_freezer_stops_a_detached_process", value == *counter);
	check("a_control_group_is_thawed", write_to(GROUP "/cgroup.freeze", "0"));
	for (turn = 0; turn < 60000 && value == *counter; turn++)
		usleep(1000);
	check("a_thawed_process_continues", value != *counter);
}

/* A stopped process stops on its CPU too; a killed one leaves it. */
static void test_stop(void)
{
	volatile unsigned long *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	unsigned long value;
	int turn, status;

	if (!child) {
		rampart_run_detached(core, loop_for_ever, (void *)counter);
		_exit(1);
	}
	for (turn = 0; turn < 60000 && !*counter; turn++)
		usleep(1000);
	check("a_process_runs_detached", state_of(device).state == RAMPART_DETACH_RUNNING);
	check("another_process_is_refused_meanwhile", refused(rampart_detach(core), EBUSY));
	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	value = *counter;
	usleep(100000);
	check("sigstop_stops_a_detached_process", value && value == *counter);
	kill(child, SIGCONT);
	for (turn = 0; turn < 60000 && value == *counter; turn++)
		usleep(1000);
	check("sigcont_continues_a_detached_process", value != *counter);
	test_freezer(child, counter);
	/* While it is frozen again. */
	if (!write_to(GROUP "/cgroup.freeze", "1") || !write_to(GROUP "/cgroup.kill", "1"))
		kill(child, SIGKILL);
	waitpid(child, &status, 0);
	check("sigkill_ends_a_detached_process", WIFSIGNALED(status) && serves());
}

struct end {
	const char *name;
	/* In the holder's other thread. */
	void (*inside)(void);
	/* From this process. */
	void (*outside)(pid_t holder);
	/* The signal that ends the holder, or 0. */
	int signal;
	int dumps_core;
};

static const struct end ends[] = {
	{ "cpu_is_given_back_after_exit", exit_process, NULL, 0, 0 },
	{ "cpu_is_given_back_after_another_program", execute_other, wait_and_kill, SIGKILL, 0 },
	{ "cpu_is_given_back_after_abort", abort, NULL, SIGABRT, 1 },
	{ "cpu_is_given_back_after_sigquit", wait_for_ever, quit_holder, SIGQUIT, 1 },
	{ "cpu_is_given_back_after_sigkill", wait_for_ever, kill_holder, SIGKILL, 0 },
	{ "cpu_is_given_back_after_sigkill_while_stopped", wait_for_ever, stop_and_kill, SIGKILL, 0 },
	{ "cpu_is_given_back_after_sigkill_under_a_debugger", wait_for_ever, debug_and_kill, SIGKILL, 0 },
	{ "cpu_is_given_back_after_sigkill_with_a_child", leave_heir, kill_holder, SIGKILL, 0 },
	{ "cpu_is_given_back_after_no_memory", wait_for_ever, run_out_of_memory, SIGKILL, 0 },
};

static void hold(int cpu, const struct end *end)
{
	const struct rlimit any = { RLIM_INFINITY, RLIM_INFINITY };
	pthread_t thread;

	core = rampart_detached_take(cpu);
	if (!core || setrlimit(RLIMIT_CORE, &any) || chdir("/tmp") ||
	    pthread_create(&thread, NULL, loop_again, NULL))
		_exit(97);
	if (!moves())
		_exit(98);
	end->inside();
	_exit(99);
}

static void test_end(int cpu, const struct end *end)
{
	int status, turn, good;
	pid_t holder;

	memset(shared, 0, sizeof(*shared));
	shared->cpu = cpu;
	end_name = end->name;
	holder = fork();
	if (!holder)
		hold(cpu, end);
	if (end->outside) {
		for (turn = 0; turn < 60000 && (!shared->turns || (end->inside == leave_heir && !shared->heir));
		     turn++)
			usleep(1000);
		if (end->inside != execute_other)
			check_seen(end->name, moves() && !is_online(cpu), "the CPU is taken");
		end->outside(holder);
	}
	waitpid(holder, &status, 0);
	if (end->signal)
		good = WIFSIGNALED(status) && WTERMSIG(status) == end->signal &&
		       !!WCOREDUMP(status) == end->dumps_core;
	else
		good = !status;
	check_seen(end->name, good && shared->turns, "the holder ends with status %x", status);
	if (shared->heir) {
		check_seen(end->name, !is_online(cpu), "the child has the CPU");
		kill(shared->heir, SIGKILL);
	}
	check_seen(end->name, is_given_back(cpu), "CPU %d is given back", cpu);
}

/* Several processes run beside each other, each on a CPU, until Linux keeps the last one. */
static void test_several(void)
{
	volatile unsigned long *turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), cpu;
	int files[64], taken = 0, running = 0, turn, status;
	pid_t children[64] = { 0 };

	for (cpu = 0; cpu < cpus && cpu < 64; cpu++) {
		files[cpu] = open_device();
		if (ioctl(files[cpu], RAMPART_DETACH_TAKE, cpu)) {
			check_seen("linux_keeps_a_cpu", errno == EBUSY || errno == EPERM,
				   "CPU %ld: %s", cpu, strerror(errno));
			continue;
		}
		taken++;
		core = rampart_detached_from_descriptor(files[cpu]);
		children[cpu] = fork();
		if (!children[cpu]) {
			rampart_run_detached(core, loop_for_ever, (void *)&turns[cpu]);
			_exit(1);
		}
		for (turn = 0; turn < 60000 && !turns[cpu]; turn++)
			usleep(1000);
	}
	for (cpu = 0; cpu < cpus && cpu < 64; cpu++)
		running += state_of(files[cpu]).state == RAMPART_DETACH_RUNNING;
	check_seen("several_processes_run_detached_at_once",
		   taken >= 2 && taken < cpus && running == taken,
		   "%d of %ld CPUs are taken, %d run", taken, cpus, running);
	for (cpu = 0; cpu < cpus && cpu < 64; cpu++) {
		if (children[cpu] > 0) {
			kill(children[cpu], SIGKILL);
			waitpid(children[cpu], &status, 0);
		}
		close(files[cpu]);
	}
	for (cpu = 1; cpu < cpus; cpu++)
		check_seen("every_cpu_is_given_back", is_given_back(cpu), "CPU %ld", cpu);
}

static void test_ends(int cpu)
{
	size_t one;

	device = open_device();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (one = 0; one < sizeof(ends) / sizeof(*ends); one++)
		test_end(cpu, &ends[one]);
	test_several();
}

#endif /* ENDS_H */
