// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A control loop on a CPU of its own, in a program whose other thread writes a
 * file. As root, with the module `detach` loaded:
 *
 *   cc -O2 -pthread -o control_loop control_loop.c detached.c
 *   ./control_loop CPU SECONDS [FILE]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "detached.h"
#include "mailbox.h"

#define PERIOD_NS	1000000
#define SLOTS		1024

struct record {
	uint64_t turn;
	uint64_t late_ns;
	double output;
};

static struct record slots[SLOTS];
static struct rampart_mailbox mailbox;
static struct rampart_detached *detached;
static uint64_t turns, lost, attached_turns;
static _Atomic int finished;

/* The part to replace. */
static double control(uint64_t turn)
{
	static double state;
	double error = (double)(turn % 100) - state;

	state += 0.1 * error;
	return state;
}

/* Makes no system call: it has its clock, and speaks with the other thread by the mailbox. */
static void loop(uint64_t last)
{
	uint64_t next = rampart_clock(detached) + PERIOD_NS;
	struct record record = { 0 };

	for (record.turn = 0; record.turn < last; record.turn++, next += PERIOD_NS) {
		/* A signal attaches the thread. Attached, it works too, with interrupts. */
		if (!rampart_is_detached(detached) && rampart_detach(detached))
			attached_turns++;
		rampart_sleep_until(detached, next);
		record.late_ns = rampart_clock(detached) - next;
		record.output = control(record.turn);
		lost += !rampart_mailbox_send(&mailbox, &record);
		turns++;
	}
}

static void *control_thread(void *argument)
{
	/* A signal of the process goes to the other thread. */
	if (rampart_detach(detached)) {
		perror("rampart_detach");
	} else {
		loop(*(uint64_t *)argument);
		rampart_reattach(detached);
	}
	finished = 1;
	return NULL;
}

int main(int count, char **arguments)
{
	struct rampart_counts before, counts;
	struct record record, worst = { 0 };
	uint64_t last, received = 0;
	pthread_t thread;
	FILE *file;

	if (count < 3) {
		fprintf(stderr, "usage: %s CPU SECONDS [FILE]\n", arguments[0]);
		return 2;
	}
	last = strtoull(arguments[2], NULL, 10) * (1000000000 / PERIOD_NS);
	file = fopen(count > 3 ? arguments[3] : "/dev/null", "w");
	/* Without it the first touch of a page interrupts the loop. */
	if (!file || mlockall(MCL_CURRENT | MCL_FUTURE)) {
		perror(arguments[0]);
		return 1;
	}
	detached = rampart_detached_take(atoi(arguments[1]));
	if (!detached) {
		fprintf(stderr, "error: cannot take CPU %s: %s\n", arguments[1], strerror(errno));
		return 1;
	}
	rampart_mailbox_begin(&mailbox, slots, SLOTS, sizeof(slots[0]));
	rampart_detached_counts(detached, &before);
	if (pthread_create(&thread, NULL, control_thread, &last)) {
		perror("pthread_create");
		return 1;
	}
	printf("detached\n");
	fflush(stdout);
	while (!finished || received < turns - lost) {
		while (rampart_mailbox_receive(&mailbox, &record)) {
			fprintf(file, "%llu %llu %f\n", (unsigned long long)record.turn,
				(unsigned long long)record.late_ns, record.output);
			if (record.late_ns > worst.late_ns)
				worst = record;
			received++;
		}
		usleep(10000);
	}
	pthread_join(thread, NULL);
	rampart_detached_counts(detached, &counts);
	printf("turns %llu lost %llu attached %llu worst %llu ns\n", (unsigned long long)turns,
	       (unsigned long long)lost, (unsigned long long)attached_turns,
	       (unsigned long long)worst.late_ns);
	printf("system calls %llu faults %llu kicks %llu flushes %llu interrupts %llu\n",
	       (unsigned long long)(counts.system_calls - before.system_calls),
	       (unsigned long long)(counts.faults - before.faults),
	       (unsigned long long)(counts.kicks - before.kicks),
	       (unsigned long long)(counts.flushes - before.flushes),
	       (unsigned long long)(counts.interrupts - before.interrupts));
	rampart_detached_close(detached);
	return fclose(file) || attached_turns ? 1 : 0;
}
