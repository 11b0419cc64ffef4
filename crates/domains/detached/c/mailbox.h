/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A mailbox between two threads of a process: one sends, one receives. Neither
 * waits or makes a system call, so that a detached thread can use it.
 */
#ifndef RAMPART_MAILBOX_H
#define RAMPART_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rampart_mailbox {
	/* Counts of messages; each is written by one side, on a cache line of its own. */
	_Alignas(64) _Atomic uint32_t sent;
	_Alignas(64) _Atomic uint32_t received;
	_Alignas(64) unsigned char *messages;
	uint32_t slots;
	uint32_t bytes;
};

/* Uses memory of slots * bytes. The number of slots is a power of two. */
static inline void rampart_mailbox_begin(struct rampart_mailbox *mailbox, void *messages,
					 uint32_t slots, uint32_t bytes)
{
	atomic_init(&mailbox->sent, 0);
	atomic_init(&mailbox->received, 0);
	mailbox->messages = messages;
	mailbox->slots = slots;
	mailbox->bytes = bytes;
}

/* Returns false if the mailbox is full. */
static inline bool rampart_mailbox_send(struct rampart_mailbox *mailbox, const void *message)
{
	uint32_t sent = atomic_load_explicit(&mailbox->sent, memory_order_relaxed);

	if (sent - atomic_load_explicit(&mailbox->received, memory_order_acquire) == mailbox->slots)
		return false;
	memcpy(mailbox->messages + (size_t)(sent % mailbox->slots) * mailbox->bytes, message,
	       mailbox->bytes);
	atomic_store_explicit(&mailbox->sent, sent + 1, memory_order_release);
	return true;
}

/* Returns false if the mailbox is empty. */
static inline bool rampart_mailbox_receive(struct rampart_mailbox *mailbox, void *message)
{
	uint32_t received = atomic_load_explicit(&mailbox->received, memory_order_relaxed);

	if (received == atomic_load_explicit(&mailbox->sent, memory_order_acquire))
		return false;
	memcpy(message, mailbox->messages + (size_t)(received % mailbox->slots) * mailbox->bytes,
	       mailbox->bytes);
	atomic_store_explicit(&mailbox->received, received + 1, memory_order_release);
	return true;
}

#endif /* RAMPART_MAILBOX_H */
