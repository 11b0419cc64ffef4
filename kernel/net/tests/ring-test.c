// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's rings in a process: attacked by a thread that changes the other
 * section, and as the other side of crates/domains/ring/tests/network.rs.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

typedef uint64_t u64;
typedef u64 __le64;
#define U64_MAX			UINT64_MAX
#define __force
#define le64_to_cpu(value)	(value)
#define cpu_to_le64(value)	(value)
#define READ_ONCE(word)		__atomic_load_n(&(word), __ATOMIC_RELAXED)
#define WRITE_ONCE(word, value)	__atomic_store_n(&(word), value, __ATOMIC_RELAXED)
#define virt_load_acquire(word)	__atomic_load_n(word, __ATOMIC_ACQUIRE)
#define virt_store_release(word, value)	__atomic_store_n(word, value, __ATOMIC_RELEASE)
#define virt_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)

#include "../ring.h"

#define SLOTS			4
#define WORDS			(RAMPART_RING_HEADER_WORDS + SLOTS * RAMPART_RING_SLOT_WORDS)

static u64 random_state = 88172645463325252ULL;

/* xorshift64 (Marsaglia 2003). */
static u64 next_random(u64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static bool ended;

/* Writes plausible and random values to all words that the other side reads. */
static void *attack(void *section)
{
	static const unsigned int words[] = {
		0, RAMPART_RING_NUMBER, RAMPART_RING_ANSWERED, RAMPART_RING_WRITTEN,
		RAMPART_RING_TAKEN, RAMPART_RING_RECEIVE_MARK, RAMPART_RING_SEND_MARK,
	};
	u64 *memory = section, state = 1234567, number = 7;

	while (!READ_ONCE(ended)) {
		u64 value = next_random(&state), kind = next_random(&state) % 10;
		unsigned int word = words[next_random(&state) % 7];

		if (kind < 8)
			value %= 2 * SLOTS + 2;
		else if (kind < 9)
			value = RAMPART_RING_MAGIC;
		WRITE_ONCE(memory[word], value);
		/* So that it is connected half of the time. */
		if (kind < 8) {
			WRITE_ONCE(memory[0], RAMPART_RING_MAGIC);
			if (!(next_random(&state) % 8))
				number++;
			WRITE_ONCE(memory[RAMPART_RING_NUMBER], number);
			WRITE_ONCE(memory[RAMPART_RING_ANSWERED], 1);
		}
		word = RAMPART_RING_HEADER_WORDS +
		       next_random(&state) % SLOTS * RAMPART_RING_SLOT_WORDS;
		WRITE_ONCE(memory[word], next_random(&state) % (kind ? 2100 : U64_MAX));
	}
	return NULL;
}

static unsigned char copy[RAMPART_RING_MOST_FRAME];

/* Receives at most count frames, each with its length to `take`. Returns their number. */
static unsigned int receive(struct rampart_ring *ring, unsigned int count, bool *ring_other,
			    bool (*take)(struct rampart_ring *ring, const void *bytes, u64 length))
{
	u64 waiting = rampart_ring_waiting(ring), old = ring->taken, index;
	const void *bytes;

	if (waiting > ring->slots) {
		rampart_ring_refuse(ring);
		return 0;
	}
	for (index = 0; index < count && index < waiting; index++) {
		u64 length = rampart_ring_frame(ring, &bytes);

		memcpy(copy, bytes, length);
		if (!take(ring, copy, length))
			break;
		ring->taken++;
	}
	if (ring->taken != old)
		*ring_other |= rampart_ring_release(ring, old);
	return index;
}

static bool send_frame(struct rampart_ring *ring, const void *bytes, u64 length)
{
	u64 used = rampart_ring_used(ring);

	if (used == ring->slots) {
		rampart_ring_mark_send(ring);
		used = rampart_ring_used(ring);
	}
	if (used > ring->slots)
		rampart_ring_refuse(ring);
	if (used >= ring->slots || !length)
		return false;
	memcpy(rampart_ring_space(ring), bytes, length);
	rampart_ring_append(ring, length);
	rampart_ring_publish(ring, ring->written - 1);
	return true;
}

static u64 taken_frames, taken_bytes;

static bool count_frame(struct rampart_ring *ring, const void *bytes, u64 length)
{
	taken_frames += !!length;
	taken_bytes += length;
	return true;
}

/* Until this number of steps was connected, and enough was refused. */
static int hostile(unsigned long steps)
{
	u64 *own = calloc(WORDS, 8), *other = calloc(WORDS, 8);
	struct rampart_ring ring = {
		.own = own, .other = other, .slots = rampart_ring_slots(WORDS * 8),
	};
	unsigned long connected = 0, refused = 0;
	time_t limit = time(NULL) + 100;
	pthread_t thread;
	bool rings = false;

	if (ring.slots != SLOTS || pthread_create(&thread, NULL, attack, other))
		return 1;
	rampart_ring_open(&ring, 1);
	while ((connected < steps || refused < 20 || taken_frames < 200) && time(NULL) < limit) {
		if (rampart_ring_is_changed(&ring))
			rampart_ring_update(&ring);
		if (ring.state != RAMPART_RING_CONNECTED) {
			refused += ring.state == RAMPART_RING_REFUSED;
			sched_yield();
			continue;
		}
		connected++;
		receive(&ring, 64, &rings, count_frame);
		if (ring.state == RAMPART_RING_CONNECTED)
			send_frame(&ring, copy, next_random(&random_state) % 2041);
		rampart_ring_mark_receive(&ring);
	}
	WRITE_ONCE(ended, true);
	pthread_join(thread, NULL);
	printf("connected %lu, refused %lu, frames %llu\n", connected, refused,
	       (unsigned long long)taken_frames);
	free(own);
	free(other);
	return connected < steps || refused < 20 || taken_frames < 200;
}

static int echo(const char *path)
{
	int file = open(path, O_RDWR);
	u64 *memory = mmap(NULL, 2 * WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	struct rampart_ring ring = { .own = memory + WORDS, .other = memory, .slots = SLOTS };
	time_t limit = time(NULL) + 100;
	bool connected = false, rings;

	if (memory == MAP_FAILED)
		return 1;
	rampart_ring_open(&ring, 12345);
	while (time(NULL) < limit) {
		if (rampart_ring_is_changed(&ring))
			rampart_ring_update(&ring);
		if (ring.state == RAMPART_RING_CONNECTED) {
			connected = true;
			receive(&ring, 64, &rings, send_frame);
		} else if (connected) {
			return ring.state != RAMPART_RING_ABSENT;
		}
	}
	return 1;
}

int main(int count, char **arguments)
{
	if (count == 3 && !strcmp(arguments[1], "hostile"))
		return hostile(strtoul(arguments[2], NULL, 10));
	if (count == 3 && !strcmp(arguments[1], "echo"))
		return echo(arguments[2]);
	return 2;
}
