/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ethernet frames through two sections of shared memory, each written by one
 * side. A copy of crates/domains/ring/src/network.rs, which has the states, the
 * rules for rings and the layout; a test compares both, and another lets them
 * exchange frames.
 *
 * The other side is hostile. Each word of its section is read once, by
 * READ_ONCE or rampart_ring_load, and checked as the local value. Own counts
 * are in struct rampart_ring and are never read back from memory.
 */
#ifndef _RAMPART_NET_RING_H
#define _RAMPART_NET_RING_H

/* "RMPNETW" and the revision. */
#define RAMPART_RING_MAGIC		0x015754454e504d52ULL
/* Indices of the words of a section, and lengths in words. */
#define RAMPART_RING_NUMBER		1
#define RAMPART_RING_ANSWERED		2
#define RAMPART_RING_WRITTEN		16
#define RAMPART_RING_TAKEN		32
#define RAMPART_RING_RECEIVE_MARK	48
#define RAMPART_RING_SEND_MARK		64
#define RAMPART_RING_HEADER_WORDS	512
#define RAMPART_RING_SLOT_WORDS		256
/* Lengths of frames in bytes, and number of slots. */
#define RAMPART_RING_LEAST_FRAME	14
#define RAMPART_RING_MOST_FRAME		2040
#define RAMPART_RING_MOST_SLOTS		8192

enum rampart_ring_state {
	RAMPART_RING_ABSENT,
	RAMPART_RING_WAITING,
	RAMPART_RING_CONNECTED,
	RAMPART_RING_REFUSED,
};

/*
 * One side. The sender writes only `written`, the receiver only `taken`; both
 * may run at the same time. All other calls exclude them.
 */
struct rampart_ring {
	u64 *own;
	const u64 *other;
	u64 slots;
	u64 number;
	u64 partner;
	enum rampart_ring_state state;
	u64 written;
	u64 taken;
};

static inline u64 rampart_ring_load(const u64 *word)
{
	/* With the other side's rampart_ring_store(): what it wrote before is visible. */
	return le64_to_cpu((__force __le64)virt_load_acquire(word));
}

static inline void rampart_ring_store(u64 *word, u64 value)
{
	/* With the other side's rampart_ring_load(). */
	virt_store_release(word, (__force u64)cpu_to_le64(value));
}

/* Returns the number of slots of a section of this size in bytes, 0 if it is too small. */
static inline u64 rampart_ring_slots(u64 bytes)
{
	u64 slots = 1;

	if (bytes / 8 < RAMPART_RING_HEADER_WORDS + 2 * RAMPART_RING_SLOT_WORDS)
		return 0;
	while (slots < RAMPART_RING_MOST_SLOTS &&
	       2 * slots <= (bytes / 8 - RAMPART_RING_HEADER_WORDS) / RAMPART_RING_SLOT_WORDS)
		slots *= 2;
	return slots;
}

/* Whether a count that grew from old to new has exceeded the mark by that. */
static inline bool rampart_ring_exceeds(u64 mark, u64 old, u64 new)
{
	return mark - old < new - old;
}

/* Sets the counts to 0, then answers a number. */
static inline void rampart_ring_answer(struct rampart_ring *ring, u64 partner)
{
	rampart_ring_store(&ring->own[RAMPART_RING_ANSWERED], 0);
	/* The new counts are not visible with the old answer. */
	virt_mb();
	ring->written = 0;
	ring->taken = 0;
	ring->partner = partner;
	rampart_ring_store(&ring->own[RAMPART_RING_WRITTEN], 0);
	rampart_ring_store(&ring->own[RAMPART_RING_TAKEN], 0);
	rampart_ring_store(&ring->own[RAMPART_RING_RECEIVE_MARK], 0);
	/* No count of a session reaches it. */
	rampart_ring_store(&ring->own[RAMPART_RING_SEND_MARK], U64_MAX);
	rampart_ring_store(&ring->own[RAMPART_RING_ANSWERED], partner);
}

/* Begins a session with a number other than 0 that this side never had before. */
static inline void rampart_ring_open(struct rampart_ring *ring, u64 number)
{
	rampart_ring_store(&ring->own[RAMPART_RING_NUMBER], 0);
	ring->number = number;
	ring->state = RAMPART_RING_ABSENT;
	rampart_ring_answer(ring, 0);
	rampart_ring_store(&ring->own[0], RAMPART_RING_MAGIC);
	rampart_ring_store(&ring->own[RAMPART_RING_NUMBER], number);
}

static inline void rampart_ring_close(struct rampart_ring *ring)
{
	rampart_ring_store(&ring->own[RAMPART_RING_NUMBER], 0);
	ring->state = RAMPART_RING_ABSENT;
}

/* Returns the other side's number, 0 for none. */
static inline u64 rampart_ring_partner(const struct rampart_ring *ring)
{
	u64 number = rampart_ring_load(&ring->other[RAMPART_RING_NUMBER]);

	return rampart_ring_load(&ring->other[0]) == RAMPART_RING_MAGIC ? number : 0;
}

static inline bool rampart_ring_is_answered(const struct rampart_ring *ring)
{
	return rampart_ring_load(&ring->other[RAMPART_RING_ANSWERED]) == ring->number;
}

/* Whether rampart_ring_update() would change the state. */
static inline bool rampart_ring_is_changed(const struct rampart_ring *ring)
{
	return rampart_ring_partner(ring) != ring->partner ||
	       (ring->partner && ring->state != RAMPART_RING_REFUSED &&
		(ring->state == RAMPART_RING_CONNECTED) != rampart_ring_is_answered(ring));
}

/* Looks at the other side's numbers. Returns whether it must be rung. */
static inline bool rampart_ring_update(struct rampart_ring *ring)
{
	u64 number = rampart_ring_partner(ring);
	bool is_new = number != ring->partner;

	if (is_new) {
		rampart_ring_answer(ring, number);
		ring->state = RAMPART_RING_WAITING;
	}
	if (!number)
		ring->state = RAMPART_RING_ABSENT;
	else if (ring->state != RAMPART_RING_REFUSED)
		ring->state = rampart_ring_is_answered(ring) ? RAMPART_RING_CONNECTED :
							       RAMPART_RING_WAITING;
	return is_new && number;
}

/* Ends the session with a side that wrote impossible counts, unless it has restarted. */
static inline void rampart_ring_refuse(struct rampart_ring *ring)
{
	if (ring->state != RAMPART_RING_CONNECTED || rampart_ring_is_changed(ring))
		return;
	rampart_ring_store(&ring->own[RAMPART_RING_ANSWERED], 0);
	ring->state = RAMPART_RING_REFUSED;
}

/* Sender: the number of used slots; more than ring->slots if the other count is impossible. */
static inline u64 rampart_ring_used(const struct rampart_ring *ring)
{
	return ring->written - rampart_ring_load(&ring->other[RAMPART_RING_TAKEN]);
}

/* Sender: asks to be rung when half of the slots are free. Look at the used slots again then. */
static inline void rampart_ring_mark_send(struct rampart_ring *ring)
{
	u64 taken = rampart_ring_load(&ring->other[RAMPART_RING_TAKEN]);

	rampart_ring_store(&ring->own[RAMPART_RING_SEND_MARK], taken + ring->slots / 2 - 1);
	/* With rampart_ring_release(): it sees the mark, or this side sees its count. */
	virt_mb();
}

static inline u64 rampart_ring_slot(const struct rampart_ring *ring, u64 frame)
{
	return RAMPART_RING_HEADER_WORDS + (frame & (ring->slots - 1)) * RAMPART_RING_SLOT_WORDS;
}

/* Sender: where the bytes of the next frame go; there must be a free slot. */
static inline void *rampart_ring_space(const struct rampart_ring *ring)
{
	return &ring->own[rampart_ring_slot(ring, ring->written) + 1];
}

/* Sender: completes the next frame; it is visible after rampart_ring_publish(). */
static inline void rampart_ring_append(struct rampart_ring *ring, u64 bytes)
{
	WRITE_ONCE(ring->own[rampart_ring_slot(ring, ring->written)],
		   (__force u64)cpu_to_le64(bytes));
	ring->written++;
}

/* Sender: publishes the frames from old on. Returns whether the other side must be rung. */
static inline bool rampart_ring_publish(struct rampart_ring *ring, u64 old)
{
	rampart_ring_store(&ring->own[RAMPART_RING_WRITTEN], ring->written);
	/* With rampart_ring_mark_receive() of the other side. */
	virt_mb();
	return rampart_ring_exceeds(rampart_ring_load(&ring->other[RAMPART_RING_RECEIVE_MARK]),
				    old, ring->written);
}

/* Receiver: the number of waiting frames; more than ring->slots if the count is impossible. */
static inline u64 rampart_ring_waiting(const struct rampart_ring *ring)
{
	return rampart_ring_load(&ring->other[RAMPART_RING_WRITTEN]) - ring->taken;
}

/* Receiver: asks to be rung for the next frame. Look for waiting frames again then. */
static inline void rampart_ring_mark_receive(struct rampart_ring *ring)
{
	rampart_ring_store(&ring->own[RAMPART_RING_RECEIVE_MARK], ring->taken);
	/* With rampart_ring_publish(): it sees the mark, or this side sees its count. */
	virt_mb();
}

/*
 * Receiver: the length of the next waiting frame, 0 if it is impossible. Its bytes may change while
 * they are read.
 */
static inline u64 rampart_ring_frame(const struct rampart_ring *ring, const void **bytes)
{
	const u64 *slot = &ring->other[rampart_ring_slot(ring, ring->taken)];
	u64 length = le64_to_cpu((__force __le64)READ_ONCE(*slot));

	*bytes = slot + 1;
	if (length < RAMPART_RING_LEAST_FRAME || length > RAMPART_RING_MOST_FRAME)
		return 0;
	return length;
}

/* Receiver: releases the slots from old on. Returns whether the other side must be rung. */
static inline bool rampart_ring_release(struct rampart_ring *ring, u64 old)
{
	rampart_ring_store(&ring->own[RAMPART_RING_TAKEN], ring->taken);
	/* With rampart_ring_mark_send() of the other side. */
	virt_mb();
	return rampart_ring_exceeds(rampart_ring_load(&ring->other[RAMPART_RING_SEND_MARK]),
				    old, ring->taken);
}

#endif /* _RAMPART_NET_RING_H */
