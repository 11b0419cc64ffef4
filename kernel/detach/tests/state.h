/* SPDX-License-Identifier: GPL-2.0-only */
/* State of a thread that is carried, or that attaches it. */
#ifndef STATE_H
#define STATE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
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

	check(rseq_cpu() >= 0, "rseq is registered");
	rampart_run_detached(core, read_rseq_cpu, &detached);
	attached = rseq_cpu();
	check(detached < 0, "rseq names CPU %d while detached", detached);
	check(attached >= 0 && attached != cpu, "rseq names CPU %d when attached again", attached);
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
	int filled = in_process(fill_registers, NULL, 20000);
	int found = in_process(find_registers, NULL, 20000);

	check(!filled && !found, "no register of another process is left: %x %x", filled, found);
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
	int filtered = in_process(call_filtered, NULL, 20000);
	int counter = in_process(detach_without_counter, NULL, 20000);
	int speculation = in_process(detach_without_speculation, NULL, 20000);

	check(!filtered && serves(), "a filter of system calls holds while detached: status %x", filtered);
	check(!counter && !speculation && serves(),
	      "what prctl forbids by registers is refused: status %x %x", counter, speculation);
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

	check(known >= 10, "%d registers can be read", known);
	check(!take(cpu) && serves(), "CPU %d is taken and serves", cpu);
	check(read_registers(cpu, after) == 0, "Linux has no access meanwhile");
	give();
	check(read_registers(cpu, after) == known, "Linux has access again");
	for (one = 0; one < REGISTERS; one++)
		if (before[one] != after[one])
			check(0, "register %x was %llx, is %llx", registers_of_cpu[one],
			      (unsigned long long)before[one], (unsigned long long)after[one]);
}

static void test_state(int cpu)
{
	struct user_desc segment = { .base_addr = 0x1000, .limit = 0xfff, .seg_32bit = 1, .useable = 1 };
	int attached = 0, status, key = pkey_alloc(0, 0);

	test_rseq(cpu);
	test_leftovers();
	test_restrictions();
	if (key >= 0) {
		pkey_free(key);
		protected_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		status = in_process(read_protected, NULL, 20000);
		check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && serves(),
		      "protection keys are the thread's: status %x", status);
	}
	check(!ioperm(0x80, 1, 1) && !rampart_run_detached(core, use_port, &attached) && attached,
	      "a permitted I/O port attaches");
	ioperm(0x80, 1, 0);
	attached = 0;
	check(!syscall(SYS_modify_ldt, 1, &segment, sizeof(segment)) &&
	      !rampart_run_detached(core, use_local_table, &attached) && attached,
	      "a segment of the local descriptor table attaches");
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
	check(0, "CPU %d has no such registers", cpu);
}

static void test_state(int cpu)
{
	int status;

	test_rseq(cpu);
	test_leftovers();
	test_restrictions();
	status = in_process(check_tags, NULL, 20000);
	check(!status && serves(), "checks of memory tags are refused: status %x", status);
}
#endif

#endif /* STATE_H */
