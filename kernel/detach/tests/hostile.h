/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a hostile thread does on a taken CPU. Each action runs in a process of
 * its own, which may end by a signal; the CPU must serve the next one.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct action {
	const char *name;
	void (*run)(void);
	/* What another thread does to the page of the code that runs. */
	void (*change)(void *page);
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

static void *new_code(const void *code, size_t bytes)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, code, bytes);
	__builtin___clear_cache(page, page + bytes);
	return page;
}

/* The other thread of the process changes the page of the code that runs. */
static void *code_page;
static void (*change_page)(void *page);

static void *change_later(void *unused)
{
	(void)unused;
	usleep(50000);
	change_page(code_page);
	return NULL;
}

static void prepare_change(void (*change)(void *page))
{
	pthread_t thread;

	change_page = change;
	code_page = new_code(endless_code, sizeof(endless_code));
	pthread_create(&thread, NULL, change_later, NULL);
}

static void run_page(void)
{
	((void (*)(void))code_page)();
}

static void unmap_page(void *page)
{
	munmap(page, 4096);
}

static void protect_page(void *page)
{
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void discard_page(void *page)
{
	madvise(page, 4096, MADV_DONTNEED);
}

static void move_page(void *page)
{
	mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, new_code("", 1));
}

/* It replaces its own instructions, and each time executes the new ones. */
static void modify_code(void)
{
	static unsigned char function[8];
	int turn, wrong = 0;

	for (turn = 0; turn < 1000; turn++) {
		fill_function(function, turn);
		if (!turn)
			code_page = new_code(function, sizeof(function));
		memcpy(code_page, function, sizeof(function));
		__builtin___clear_cache(code_page, (char *)code_page + sizeof(function));
		wrong += ((int (*)(void))code_page)() != turn;
	}
	/* Reported as a failure. */
	if (wrong)
		_exit(99);
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

static void vfork_detached(void)
{
	if (!vfork())
		_exit(0);
}

static void spawn_detached(void)
{
	char *const arguments[] = { "true", NULL };
	pid_t child;

	if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, NULL))
		_exit(99);
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
	ONE(vfork_detached), ONE(spawn_detached), ONE(modify_code),
	{ "code_unmapped", run_page, unmap_page, 0, 0 },
	{ "code_protected", run_page, protect_page, 0, 0 },
	{ "code_discarded", run_page, discard_page, 0, 0 },
	{ "code_moved", run_page, move_page, 0, 0 },
	{ "endless", endless, NULL, 1, 0 },
	{ "endless_calls", endless_calls, NULL, 1, 0 },
	{ "endless_faults", endless_faults, NULL, 1, 0 },
};

#endif /* HOSTILE_H */
