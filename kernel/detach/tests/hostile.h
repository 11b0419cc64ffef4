/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a hostile thread does on a taken CPU. Each action runs in a process of
 * its own, which may end by a signal; the CPU must serve the next one.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct action {
	const char *name;
	void (*run)(void);
	/* Before the thread is detached. */
	void (*before)(void);
	/* It does not end. */
	int endless;
	int without_smap;
};

#define ACTION(name, code)			\
	static void name(void)			\
	{					\
		asm volatile(code : : : "memory");	\
	}

#define ONE(name) { #name, name, NULL, 0, 0 }
#define WITHOUT_SMAP(name) { #name, name, NULL, 0, 1 }

#ifdef __x86_64__
#include "hostile-x86_64.h"
#else
#include "hostile-aarch64.h"
#endif

static void overflow_stack(void)
{
	volatile char frame[65536];

	frame[0] = 1;
	overflow_stack();
	frame[1] = frame[0];
}

static void *unmap_code(void *code)
{
	usleep(50000);
	munmap(code, 4096);
	return NULL;
}

/* The other thread of the process unmaps the code that runs. */
static void *code_page;

static void run_unmapped(void)
{
	((void (*)(void))code_page)();
}

static void before_run_unmapped(void)
{
	pthread_t thread;

	code_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(code_page, endless_code, sizeof(endless_code));
	__builtin___clear_cache(code_page, (char *)code_page + sizeof(endless_code));
	pthread_create(&thread, NULL, unmap_code, code_page);
}

static void exit_detached(void)
{
	_exit(0);
}

static void end_thread(void)
{
	pthread_exit(NULL);
}

static void execute(void)
{
	execl("/bin/true", "true", NULL);
}

static void fork_detached(void)
{
	if (!fork())
		_exit(0);
}

static void endless_faults(void)
{
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (;;) {
		memory[0] = 1;
		madvise(memory, 4096, MADV_DONTNEED);
	}
}

static const struct action actions[] = {
	MACHINE_ACTIONS
	ONE(overflow_stack), ONE(exit_detached), ONE(end_thread), ONE(execute), ONE(fork_detached),
	{ "run_unmapped", run_unmapped, before_run_unmapped, 0, 0 },
	{ "endless", endless, NULL, 1, 0 },
	{ "endless_calls", endless_calls, NULL, 1, 0 },
	{ "endless_faults", endless_faults, NULL, 1, 0 },
};

#endif /* HOSTILE_H */
