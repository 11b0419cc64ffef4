/* SPDX-License-Identifier: GPL-2.0-only */
/* State of a thread that is carried, or that attaches it. */
#ifndef STATE_H
#define STATE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/rseq.h>

/* The CPU in the area of restartable sequences, or a negative number while there is none. */
static int rseq_cpu(void)
{
	char *pointer = __builtin_thread_pointer();

	return (int)((volatile struct rseq *)(pointer + __rseq_offset))->cpu_id;
}

static void read_rseq_cpu(void *cpu)
{
	*(int *)cpu = rseq_cpu();
}

static void test_rseq(int cpu)
{
	int detached = 0, attached;

	check("rseq_is_registered", rseq_cpu() >= 0);
	rampart_run_detached(core, read_rseq_cpu, &detached);
	attached = rseq_cpu();
	check_seen("rseq_names_no_cpu_while_detached", detached < 0, "CPU %d", detached);
	check_seen("rseq_names_the_cpu_when_attached_again", attached >= 0 && attached != cpu,
		   "CPU %d", attached);
}

static void fill_registers(const void *unused)
{
	if (rampart_detach(core))
		_exit(98);
	FILL_REGISTERS();
	/* It ends on the CPU. */
	_exit(0);
}

static void find_registers(const void *unused)
{
	uint64_t found[17] = { 0 };
	int one;

	if (rampart_detach(core))
		_exit(98);
	READ_REGISTERS(found);
	rampart_reattach(core);
	for (one = 0; one < 17; one++)
		if (found[one])
			_exit(1);
}

/* Registers that calls need not preserve have nothing of the thread before. */
static void test_leftovers(void)
{
	int filled = in_process(fill_registers, NULL, 60000);
	int found = in_process(find_registers, NULL, 60000);

	check_seen("no_register_of_another_process_is_left", !filled && !found, "%x %x", filled,
		   found);
}

/* A filter lets getppid(2) fail with EXDEV, also while detached. */
static void call_filtered(const void *unused)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) || rampart_detach(core))
		_exit(98);
	if (!refused(syscall(SYS_getppid), EXDEV) || !rampart_is_detached(core))
		_exit(1);
	_exit(0);
}

/* Linux forbids these by registers of the thread's CPU. */
static void detach_without_counter(const void *unused)
{
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0))
		_exit(0);
	_exit(refused(rampart_detach(core), EOPNOTSUPP) ? 0 : 1);
}

static void detach_without_speculation(const void *unused)
{
	if (prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0))
		_exit(0);
	_exit(refused(rampart_detach(core), EOPNOTSUPP) ? 0 : 1);
}

static void test_restrictions(void)
{
	int filtered = in_process(call_filtered, NULL, 60000);
	int counter = in_process(detach_without_counter, NULL, 60000);
	int speculation = in_process(detach_without_speculation, NULL, 60000);

	check_seen("a_filter_of_system_calls_holds_while_detached", !filtered && serves(),
		   "status %x", filtered);
	check_seen("what_prctl_forbids_by_registers_is_refused",
		   !counter && !speculation && serves(), "status %x %x", counter, speculation);
}

/* Calls that fail or change nothing, but that the thread itself has to execute. */
static const struct {
	long number, arguments[6];
} attaching_calls[] = {
	{ SYS_rt_sigprocmask, { SIG_BLOCK, 0, 0, 8 } },
	{ SYS_rt_sigtimedwait, { 0, 0, 0, 8 } },
	{ SYS_rt_sigsuspend, { 0, 0 } },
	{ SYS_sigaltstack, { 0, 0 } },
	{ SYS_clone, { CLONE_THREAD } },
	{ SYS_clone3, { 0, 0 } },
	{ SYS_execve, { 0, 0, 0 } },
	{ SYS_execveat, { -1, 0, 0, 0, 0 } },
	{ SYS_prctl, { PR_GET_DUMPABLE } },
	{ SYS_pkey_alloc, { 1, 0 } },
	{ SYS_rseq, { 0, 0, 0, 0 } },
	{ SYS_ppoll, { 0, 0, 0, 1, 0 } },
	{ SYS_pselect6, { -1, 0, 0, 0, 0, 1 } },
	{ SYS_epoll_pwait, { -1, 0, 0, 0, 1, 0 } },
	{ SYS_io_uring_enter, { -1, 0, 0, 0, 1, 0 } },
	{ SYS_ioctl, { -1, 0xae80 /* KVM_RUN */ } },
#ifdef __x86_64__
	{ SYS_arch_prctl, { 0 } },
#endif
};

static void attach_by_calls(void *unused)
{
	size_t one;

	for (one = 0; one < sizeof(attaching_calls) / sizeof(*attaching_calls); one++) {
		const long *with = attaching_calls[one].arguments;

		syscall(attaching_calls[one].number, with[0], with[1], with[2], with[3], with[4], with[5]);
		check_seen("calls_for_the_thread_itself_attach", !rampart_is_detached(core),
			   "system call %ld", attaching_calls[one].number);
		if (rampart_detach(core))
			check_seen("calls_for_the_thread_itself_attach", 0,
				   "not detached again after call %ld",
				   attaching_calls[one].number);
	}
	/* Without a signal mask. */
	syscall(SYS_ppoll, 0L, 0L, 1L, 0L, 0L);
	check("ppoll_without_a_signal_mask_is_proxied", rampart_is_detached(core));
}

static volatile sig_atomic_t signals_attached;

static void on_masked_signal(int number)
{
	signals_attached += !rampart_is_detached(core);
}

static void poll_with_mask(void *interrupted)
{
	const struct timespec second = { .tv_sec = 1 };
	sigset_t none;

	sigemptyset(&none);
	*(int *)interrupted = refused(ppoll(NULL, 0, &second, &none), EINTR);
}

/* A call with a signal mask, during which a pending signal is delivered. */
static void test_masked_call(void)
{
	sigset_t blocked, before;
	int interrupted = 0;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	signal(SIGUSR2, on_masked_signal);
	raise(SIGUSR2);
	rampart_run_detached(core, poll_with_mask, &interrupted);
	check("a_signal_during_ppoll_is_handled_attached", interrupted && signals_attached == 1);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Writes to a file in memory by a mapping that it makes, and reads it back. */
static void write_file(void *argument)
{
	unsigned int *flags = argument;
	size_t bytes = 2 << 20;
	int file = memfd_create("file", *flags);
	volatile char *memory;
	char value = 0;

	if (ftruncate(file, bytes))
		return;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		return;
	memory[bytes - 1] = 7;
	if (pread(file, &value, 1, bytes - 1) == 1 && value == 7 && rampart_is_detached(core))
		*flags = ~0U;
	munmap((void *)memory, bytes);
	close(file);
}

static void test_files_in_memory(void)
{
	unsigned int small = MFD_CLOEXEC, huge = MFD_CLOEXEC | MFD_HUGETLB;

	check("there_are_huge_pages", write_to("/proc/sys/vm/nr_hugepages", "2"));
	check("a_file_in_memory_is_written",
	      !rampart_run_detached(core, write_file, &small) && small == ~0U);
	check("a_file_of_huge_pages_is_written",
	      !rampart_run_detached(core, write_file, &huge) && huge == ~0U);
	write_to("/proc/sys/vm/nr_hugepages", "0");
}

/* A page whose content another thread has to provide: userfaultfd(2). */
static char *absent_page;

static int open_absent_page(void)
{
	struct uffdio_api interface = { .api = UFFD_API };
	struct uffdio_register region = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int file = syscall(SYS_userfaultfd, O_CLOEXEC);

	absent_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	region.range.start = (uintptr_t)absent_page;
	region.range.len = 4096;
	if (ioctl(file, UFFDIO_API, &interface) || ioctl(file, UFFDIO_REGISTER, &region)) {
		close(file);
		return -1;
	}
	return file;
}

static void *provide_page(void *file)
{
	static char content[4096] __attribute__((aligned(4096))) = { 7 };
	struct uffdio_copy copy = { .src = (uintptr_t)content, .dst = (uintptr_t)absent_page,
				    .len = 4096 };
	struct uffd_msg message;

	if (read(*(int *)file, &message, sizeof(message)) != sizeof(message) ||
	    ioctl(*(int *)file, UFFDIO_COPY, &copy))
		return NULL;
	return file;
}

static void read_page(void *value)
{
	*(int *)value = *(volatile char *)absent_page;
	if (!rampart_is_detached(core))
		*(int *)value = -1;
}

static void read_absent(const void *unused)
{
	int value;

	if (open_absent_page() >= 0)
		rampart_run_detached(core, read_page, &value);
}

static void test_absent_page(void)
{
	int file = open_absent_page(), value = 0, status;
	void *provided = NULL;
	pthread_t thread;

	check("another_thread_is_to_provide_a_page", file >= 0);
	if (file < 0)
		return;
	pthread_create(&thread, NULL, provide_page, &file);
	rampart_run_detached(core, read_page, &value);
	pthread_join(thread, &provided);
	check_seen("a_detached_thread_waits_for_its_page", provided && value == 7, "%d", value);
	close(file);
	status = in_process(read_absent, NULL, 200);
	check_seen("sigkill_ends_a_thread_that_waits_for_its_page", status == -1 && serves(),
		   "status %x", status);
}

/* What a thread writes there stays when it attaches, and the C library's stays where it is. */
static void write_thread_pointer(const void *unused)
{
	if (rampart_detach(core) || !keeps_thread_pointer())
		_exit(1);
	_exit(rampart_is_detached(core) ? 2 : 0);
}

/* Below the stack of the first thread, as far as Linux lets it grow. */
static void grow_stack(const void *unused)
{
	volatile char *stack = __builtin_frame_address(0);

	if (rampart_detach(core))
		_exit(98);
	stack[-(1 << 20)] = 1;
	_exit(rampart_is_detached(core));
}

static void test_first_thread(void)
{
	int pointer = in_process(write_thread_pointer, NULL, 60000);
	int stack = in_process(grow_stack, NULL, 60000);

	check_seen("the_pointer_of_a_thread_to_its_own_memory_is_carried", !pointer && serves(),
		   "status %x", pointer);
	check_seen("a_stack_that_grows_attaches", !stack && serves(), "status %x", stack);
}

static volatile unsigned int bounces;

static void bounce(void *argument)
{
	unsigned int mine = *(unsigned int *)argument;
	char *memory;

	while (bounces < 1000) {
		if (bounces % 2 != mine)
			continue;
		/* Memory goes while the other one runs. */
		if (bounces % 50 < 2) {
			memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				      -1, 0);
			memory[4096] = 1;
			munmap(memory, 8192);
		}
		bounces++;
	}
}

static void *bounce_on_other(void *other)
{
	unsigned int second = 1;

	return rampart_run_detached(other, bounce, &second) ? other : NULL;
}

/* Two threads of a process are detached at once, and answer each other. */
static void detach_two(const void *argument)
{
	int file = open_device(), cpu = *(const int *)argument + 1;
	unsigned int first = 0;
	void *failed = NULL;
	pthread_t thread;

	if (ioctl(file, RAMPART_DETACH_TAKE, cpu))
		_exit(97);
	pthread_create(&thread, NULL, bounce_on_other, rampart_detached_from_descriptor(file));
	if (rampart_run_detached(core, bounce, &first))
		_exit(96);
	pthread_join(thread, &failed);
	_exit(failed || bounces < 1000 || state_of(file).interrupts);
}

static void test_two(int cpu)
{
	int status = in_process(detach_two, &cpu, 60000);

	check_seen("two_threads_of_a_process_are_detached_at_once", !status && serves(),
		   "status %x", status);
}

static void read_pipe(void *ends)
{
	char byte;

	if (read(*(int *)ends, &byte, 1) != 1 || !rampart_is_detached(core))
		_exit(1);
}

static void *read_detached(void *ends)
{
	rampart_run_detached(core, read_pipe, ends);
	return NULL;
}

/* While the detached thread waits in a system call, its CPU is no other's. */
static void detach_during_call(const void *unused)
{
	struct rampart_detached *second = rampart_detached_from_descriptor(device);
	struct rampart_detach_state state;
	pthread_t thread;
	int ends[2];

	if (pipe(ends))
		_exit(98);
	pthread_create(&thread, NULL, read_detached, ends);
	do {
		usleep(1000);
		ioctl(device, RAMPART_DETACH_STATE, &state);
	} while (state.state != RAMPART_DETACH_STOPPED);
	usleep(20000);
	if (!refused(rampart_detach(second), EBUSY) || write(ends[1], "", 1) != 1)
		_exit(97);
	pthread_join(thread, NULL);
	_exit(0);
}

static void test_during_call(void)
{
	int status = in_process(detach_during_call, NULL, 60000);

	check_seen("a_thread_in_a_system_call_keeps_its_cpu", !status && serves(), "status %x",
		   status);
}

static void test_common_state(int cpu)
{
	test_during_call();
	test_rseq(cpu);
	test_first_thread();
	test_two(cpu);
	test_leftovers();
	test_restrictions();
	check("runs_with_calls_that_attach", !rampart_run_detached(core, attach_by_calls, NULL));
	test_masked_call();
	test_files_in_memory();
	test_absent_page();
}

#ifdef __x86_64__
#include <asm/ldt.h>
#include <sys/io.h>

static char *volatile protected_page;

static void read_protected(const void *unused)
{
	static char value;
	int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);

	if (key < 0 || pkey_mprotect(protected_page, 4096, PROT_READ | PROT_WRITE, key))
		_exit(97);
	if (rampart_detach(core))
		_exit(98);
	/* Permitted by the thread itself, and remembered when it attaches. */
	pkey_set(key, 0);
	value = *protected_page;
	if (!rampart_is_detached(core) || value)
		_exit(96);
	rampart_reattach(core);
	if (pkey_get(key) != 0)
		_exit(95);
	pkey_set(key, PKEY_DISABLE_ACCESS);
	if (rampart_detach(core))
		_exit(94);
	value = *protected_page;
	_exit(93);
}

static void use_port(void *attached)
{
	*(int *)attached = 0;
	outb(0, 0x80);
	*(int *)attached = !rampart_is_detached(core);
}

static void use_local_table(void *attached)
{
	unsigned int selector = 7, found;

	asm volatile("movw %w1, %%es; movl %%es, %0" : "=r"(found) : "r"(selector));
	asm volatile("movw %w0, %%es" : : "r"(0));
	*(int *)attached = found == selector && !rampart_is_detached(core);
}

/* Those that Linux sets when a CPU starts, or that the driver sets: Intel SDM 4, 2.1. */
static const uint32_t registers_of_cpu[] = {
	0x1b, 0x174, 0x175, 0x176, 0x1a0, 0x277, 0x2ff, 0xc0000080, 0xc0000081, 0xc0000082,
	0xc0000083, 0xc0000084, 0xc0000103,
};

#define REGISTERS (sizeof(registers_of_cpu) / sizeof(*registers_of_cpu))

static int read_registers(int cpu, uint64_t *values)
{
	int count = 0, file;
	char path[40];
	size_t one;

	snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
	file = open(path, O_RDONLY);
	for (one = 0; one < REGISTERS; one++)
		count += pread(file, &values[one], 8, registers_of_cpu[one]) == 8;
	close(file);
	return count;
}

static void run_restored(int cpu)
{
	uint64_t before[REGISTERS] = { 0 }, after[REGISTERS] = { 0 };
	int known = read_registers(cpu, before);
	size_t one;

	check_seen("registers_can_be_read", known >= 10, "%d", known);
	check_seen("a_cpu_with_read_registers_serves", !take(cpu) && serves(), "CPU %d", cpu);
	check("linux_has_no_access_meanwhile", read_registers(cpu, after) == 0);
	give();
	check("linux_has_access_again", read_registers(cpu, after) == known);
	for (one = 0; one < REGISTERS; one++)
		check_seen("registers_are_restored", before[one] == after[one],
			   "register %x was %llx, is %llx", registers_of_cpu[one],
			   (unsigned long long)before[one], (unsigned long long)after[one]);
}

static void test_state(int cpu)
{
	struct user_desc segment = { .base_addr = 0x1000, .limit = 0xfff, .seg_32bit = 1, .useable = 1 };
	int attached = 0, status, key = pkey_alloc(0, 0);

	test_common_state(cpu);
	if (key >= 0) {
		pkey_free(key);
		protected_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		status = in_process(read_protected, NULL, 60000);
		check_seen("protection_keys_belong_to_the_thread",
			   WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && serves(),
			   "status %x", status);
	}
	check("a_permitted_i_o_port_attaches",
	      !ioperm(0x80, 1, 1) && !rampart_run_detached(core, use_port, &attached) && attached);
	ioperm(0x80, 1, 0);
	attached = 0;
	check("a_segment_of_the_local_descriptor_table_attaches",
	      !syscall(SYS_modify_ldt, 1, &segment, sizeof(segment)) && !rampart_run_detached(core, use_local_table, &attached) && attached);
}
#else
#ifndef PR_MTE_TCF_SYNC
#define PR_MTE_TCF_SYNC (1UL << 1)
#endif

static void check_tags(const void *unused)
{
	/* EINVAL without the extension. */
	if (prctl(PR_SET_TAGGED_ADDR_CTRL, PR_TAGGED_ADDR_ENABLE | PR_MTE_TCF_SYNC, 0, 0, 0))
		_exit(0);
	_exit(rampart_detach(core) && errno == EOPNOTSUPP ? 0 : 1);
}

static void run_restored(int cpu)
{
	check_seen("registers_can_be_read", 0, "CPU %d has no such registers", cpu);
}

static void test_state(int cpu)
{
	int status;

	test_common_state(cpu);
	status = in_process(check_tags, NULL, 60000);
	check_seen("checks_of_memory_tags_are_refused", !status && serves(), "status %x", status);
}
#endif

#endif /* STATE_H */
