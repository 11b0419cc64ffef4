/* SPDX-License-Identifier: GPL-2.0-only */
/* State of a thread that is carried, or that attaches it. */
#ifndef STATE_H
#define STATE_H

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

static void fill_vectors(const void *unused)
{
	if (rampart_detach(core))
		_exit(98);
	FILL_VECTOR_REGISTERS();
	/* It ends on the CPU. */
	_exit(0);
}

static void find_vectors(const void *unused)
{
	uint64_t found[16];
	int one;

	if (rampart_detach(core))
		_exit(98);
	READ_VECTOR_REGISTERS(found);
	rampart_reattach(core);
	for (one = 0; one < 16; one++)
		if (found[one])
			_exit(1);
}

/* Registers that calls need not preserve have nothing of the thread before. */
static void test_leftovers(void)
{
	int filled = in_process(fill_vectors, NULL, 20000);
	int found = in_process(find_vectors, NULL, 20000);

	check(!filled && !found, "no vector register of another process is left: %x %x", filled, found);
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

static void test_state(int cpu)
{
	struct user_desc segment = { .base_addr = 0x1000, .limit = 0xfff, .seg_32bit = 1, .useable = 1 };
	int attached = 0, status, key = pkey_alloc(0, 0);

	test_rseq(cpu);
	test_leftovers();
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

static void test_state(int cpu)
{
	int status;

	test_rseq(cpu);
	test_leftovers();
	status = in_process(check_tags, NULL, 20000);
	check(!status && serves(), "checks of memory tags are refused: status %x", status);
}
#endif

#endif /* STATE_H */
