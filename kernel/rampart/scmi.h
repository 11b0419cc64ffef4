/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Messages of SCMI (Arm DEN 0056): decides about one request. It reads only a copy of
 * the request, and calls the functions of the service only with numbers that exist.
 * Plain C, so that tests/scmi-test.c runs it in a process.
 *
 * Rates are those that the root has set: a request to change one is denied, because
 * other users may depend on it.
 */
#ifndef _RAMPART_SCMI_H
#define _RAMPART_SCMI_H

/* Words of a message after its header, at most: 128 bytes, the limit of Linux's client. */
#define RAMPART_SCMI_WORDS	32
/* Clocks, resets or power domains of a cell, at most. */
#define RAMPART_SCMI_MOST	64

/* Kinds of resources, and the index of their counts. */
#define RAMPART_SCMI_CLOCK	0
#define RAMPART_SCMI_RESET	1
#define RAMPART_SCMI_POWER	2
#define RAMPART_SCMI_KINDS	3

/* Status codes (4.1.4). */
#define RAMPART_SCMI_SUCCESS	0
#define RAMPART_SCMI_NOT_SUPPORTED	(-1)
#define RAMPART_SCMI_INVALID	(-2)
#define RAMPART_SCMI_DENIED	(-3)
#define RAMPART_SCMI_NOT_FOUND	(-4)
#define RAMPART_SCMI_HARDWARE	(-9)
#define RAMPART_SCMI_PROTOCOL	(-10)

/* Protocols (table 4). */
#define RAMPART_SCMI_BASE_PROTOCOL	0x10
#define RAMPART_SCMI_POWER_PROTOCOL	0x11
#define RAMPART_SCMI_CLOCK_PROTOCOL	0x14
#define RAMPART_SCMI_RESET_PROTOCOL	0x16

/* What a cell has, and how it is changed. Functions return a status code. */
struct rampart_scmi_service {
	u32 counts[RAMPART_SCMI_KINDS];
	/* Enables or disables a clock or a power domain, deasserts or asserts a reset. */
	s32 (*set)(struct rampart_scmi_service *service, u32 kind, u32 number, bool on);
	/* Returns whether the cell itself has it on. */
	bool (*is_on)(struct rampart_scmi_service *service, u32 kind, u32 number);
	/* Asserts a reset and deasserts it again. */
	s32 (*reset)(struct rampart_scmi_service *service, u32 number);
	/* Returns the rate of a clock in hertz. */
	u64 (*rate)(struct rampart_scmi_service *service, u32 number);
};

struct rampart_scmi_message {
	/* Identity, type, protocol and token of the message (4.1.2). */
	u32 header;
	/* Bytes of header and words, as the sender states. */
	u32 bytes;
	u32 words[RAMPART_SCMI_WORDS];
};

static inline void rampart_scmi_append(struct rampart_scmi_message *answer, u32 word)
{
	u32 used = answer->bytes / 4 - 1;

	if (used >= RAMPART_SCMI_WORDS)
		return;
	answer->words[used] = word;
	answer->bytes += 4;
}

/* Appends a name of 16 bytes: a letter and a number of two digits, or "rampart". */
static inline void rampart_scmi_name(struct rampart_scmi_message *answer, char letter,
				     u32 number)
{
	u32 digits = ('0' + number / 10 % 10) << 8 | ('0' + number % 10) << 16;
	bool plain = !letter;

	rampart_scmi_append(answer, plain ? 0x706d6172 : (u32)letter | digits);
	rampart_scmi_append(answer, plain ? 0x00747261 : 0);
	rampart_scmi_append(answer, 0);
	rampart_scmi_append(answer, 0);
}

/* The base protocol (4.2). */
static inline s32 rampart_scmi_base(struct rampart_scmi_service *service, u32 message,
				    const u32 *words, struct rampart_scmi_message *answer)
{
	static const u8 protocols[RAMPART_SCMI_KINDS] = {
		RAMPART_SCMI_CLOCK_PROTOCOL,
		RAMPART_SCMI_RESET_PROTOCOL,
		RAMPART_SCMI_POWER_PROTOCOL,
	};
	u32 kind, list = 0, count = 0;

	/* Four protocols fit into a word; a cell has three at most, besides this one. */
	for (kind = 0; kind < RAMPART_SCMI_KINDS; kind++)
		if (service->counts[kind])
			list |= (u32)protocols[kind] << 8 * count++;
	switch (message) {
	case 1: /* PROTOCOL_ATTRIBUTES: one agent */
		rampart_scmi_append(answer, count | 1 << 8);
		return RAMPART_SCMI_SUCCESS;
	case 3: /* BASE_DISCOVER_VENDOR */
	case 4: /* BASE_DISCOVER_SUB_VENDOR */
		rampart_scmi_name(answer, 0, 0);
		return RAMPART_SCMI_SUCCESS;
	case 5: /* BASE_DISCOVER_IMPLEMENTATION_VERSION */
		rampart_scmi_append(answer, 1);
		return RAMPART_SCMI_SUCCESS;
	case 6: /* BASE_DISCOVER_LIST_PROTOCOLS, from an index on */
		if (words[0] > count)
			return RAMPART_SCMI_INVALID;
		rampart_scmi_append(answer, count - words[0]);
		if (words[0] < count)
			rampart_scmi_append(answer, list >> 8 * words[0]);
		return RAMPART_SCMI_SUCCESS;
	case 7: /* BASE_DISCOVER_AGENT: itself by two numbers */
		if (words[0] && words[0] != 0xffffffff)
			return RAMPART_SCMI_NOT_FOUND;
		rampart_scmi_append(answer, 0);
		rampart_scmi_name(answer, 0, 0);
		return RAMPART_SCMI_SUCCESS;
	}
	return RAMPART_SCMI_NOT_SUPPORTED;
}

/* Power domains (4.3). */
static inline s32 rampart_scmi_power(struct rampart_scmi_service *service, u32 message,
				     const u32 *words, struct rampart_scmi_message *answer)
{
	u32 number = words[message == 4];

	if (message == 1) { /* PROTOCOL_ATTRIBUTES: no statistics */
		rampart_scmi_append(answer, service->counts[RAMPART_SCMI_POWER]);
		rampart_scmi_append(answer, 0);
		rampart_scmi_append(answer, 0);
		rampart_scmi_append(answer, 0);
		return RAMPART_SCMI_SUCCESS;
	}
	if (number >= service->counts[RAMPART_SCMI_POWER])
		return RAMPART_SCMI_NOT_FOUND;
	switch (message) {
	case 3: /* POWER_DOMAIN_ATTRIBUTES: set synchronously */
		rampart_scmi_append(answer, 1U << 29);
		rampart_scmi_name(answer, 'p', number);
		return RAMPART_SCMI_SUCCESS;
	case 4: /* POWER_STATE_SET: synchronously, on (0) or off with lost context */
		if (words[0] || words[2] & ~(1U << 30))
			return RAMPART_SCMI_INVALID;
		return service->set(service, RAMPART_SCMI_POWER, number, !words[2]);
	case 5: /* POWER_STATE_GET */
		rampart_scmi_append(answer, service->is_on(service, RAMPART_SCMI_POWER, number) ?
				    0 : 1U << 30);
		return RAMPART_SCMI_SUCCESS;
	}
	return RAMPART_SCMI_NOT_SUPPORTED;
}

/* Clocks (4.6). */
static inline s32 rampart_scmi_clock(struct rampart_scmi_service *service, u32 message,
				     const u32 *words, struct rampart_scmi_message *answer)
{
	u32 number = words[message == 5];
	u64 rate;

	if (message == 1) { /* PROTOCOL_ATTRIBUTES: none is set asynchronously */
		rampart_scmi_append(answer, service->counts[RAMPART_SCMI_CLOCK]);
		return RAMPART_SCMI_SUCCESS;
	}
	if (number >= service->counts[RAMPART_SCMI_CLOCK])
		return RAMPART_SCMI_NOT_FOUND;
	switch (message) {
	case 3: /* CLOCK_ATTRIBUTES */
		rampart_scmi_append(answer, service->is_on(service, RAMPART_SCMI_CLOCK, number));
		rampart_scmi_name(answer, 'c', number);
		return RAMPART_SCMI_SUCCESS;
	case 4: /* CLOCK_DESCRIBE_RATES: a list with the present one */
		if (words[1])
			return RAMPART_SCMI_INVALID;
		rampart_scmi_append(answer, 1);
		break;
	case 5: /* CLOCK_RATE_SET */
		if (words[0] & ~0xfU)
			return RAMPART_SCMI_INVALID;
		rate = (u64)words[3] << 32 | words[2];
		return rate == service->rate(service, number) ? RAMPART_SCMI_SUCCESS :
			RAMPART_SCMI_DENIED;
	case 6: /* CLOCK_RATE_GET */
		break;
	case 7: /* CLOCK_CONFIG_SET */
		if (words[1] & ~1U)
			return RAMPART_SCMI_INVALID;
		return service->set(service, RAMPART_SCMI_CLOCK, number, words[1]);
	default:
		return RAMPART_SCMI_NOT_SUPPORTED;
	}
	rate = service->rate(service, number);
	rampart_scmi_append(answer, (u32)rate);
	rampart_scmi_append(answer, (u32)(rate >> 32));
	return RAMPART_SCMI_SUCCESS;
}

/* Resets (4.8). */
static inline s32 rampart_scmi_reset(struct rampart_scmi_service *service, u32 message,
				     const u32 *words, struct rampart_scmi_message *answer)
{
	u32 number = words[0];

	if (message == 1) { /* PROTOCOL_ATTRIBUTES */
		rampart_scmi_append(answer, service->counts[RAMPART_SCMI_RESET]);
		return RAMPART_SCMI_SUCCESS;
	}
	if (number >= service->counts[RAMPART_SCMI_RESET])
		return RAMPART_SCMI_NOT_FOUND;
	switch (message) {
	case 3: /* RESET_DOMAIN_ATTRIBUTES: synchronous, of unknown duration */
		rampart_scmi_append(answer, 0);
		rampart_scmi_append(answer, 0xffffffff);
		rampart_scmi_name(answer, 'r', number);
		return RAMPART_SCMI_SUCCESS;
	case 4: /* RESET: the flags are autonomous (0) and asserted (1); a cold reset */
		if (words[1] & ~3U || words[2])
			return RAMPART_SCMI_INVALID;
		if (words[1] & 1)
			return service->reset(service, number);
		return service->set(service, RAMPART_SCMI_RESET, number, !(words[1] & 2));
	}
	return RAMPART_SCMI_NOT_SUPPORTED;
}

/* Returns the words of a request, or -1 if the protocol does not have it. */
static inline int rampart_scmi_length(u32 protocol, u32 message)
{
	/* By message, from PROTOCOL_VERSION on. */
	static const s8 base[] = { 0, 0, 1, 0, 0, 0, 1, 1 };
	static const s8 power[] = { 0, 0, 1, 1, 3, 1 };
	static const s8 clock[] = { 0, 0, 1, 1, 2, 4, 1, 2 };
	static const s8 reset[] = { 0, 0, 1, 1, 3 };

	switch (protocol) {
	case RAMPART_SCMI_BASE_PROTOCOL:
		return message < sizeof(base) ? base[message] : -1;
	case RAMPART_SCMI_POWER_PROTOCOL:
		return message < sizeof(power) ? power[message] : -1;
	case RAMPART_SCMI_CLOCK_PROTOCOL:
		return message < sizeof(clock) ? clock[message] : -1;
	case RAMPART_SCMI_RESET_PROTOCOL:
		return message < sizeof(reset) ? reset[message] : -1;
	}
	return -1;
}

static inline s32 rampart_scmi_decide(struct rampart_scmi_service *service,
				      const struct rampart_scmi_message *request,
				      struct rampart_scmi_message *answer)
{
	u32 message = request->header & 0xff, protocol = request->header >> 10 & 0xff;
	int length = rampart_scmi_length(protocol, message);

	/* Only commands (type 0) are requests. */
	if (request->header >> 8 & 3 || length < 0)
		return RAMPART_SCMI_NOT_SUPPORTED;
	if (request->bytes != 4 * (u32)length + 4)
		return RAMPART_SCMI_PROTOCOL;
	if ((protocol == RAMPART_SCMI_POWER_PROTOCOL && !service->counts[RAMPART_SCMI_POWER]) ||
	    (protocol == RAMPART_SCMI_CLOCK_PROTOCOL && !service->counts[RAMPART_SCMI_CLOCK]) ||
	    (protocol == RAMPART_SCMI_RESET_PROTOCOL && !service->counts[RAMPART_SCMI_RESET]))
		return RAMPART_SCMI_NOT_SUPPORTED;
	if (!message) { /* PROTOCOL_VERSION: 2.0 of base and power, 1.0 of the others */
		rampart_scmi_append(answer, protocol < RAMPART_SCMI_CLOCK_PROTOCOL ? 0x20000 :
				    0x10000);
		return RAMPART_SCMI_SUCCESS;
	}
	if (message == 2) { /* PROTOCOL_MESSAGE_ATTRIBUTES */
		if (request->words[0] > 0xff ||
		    rampart_scmi_length(protocol, request->words[0]) < 0)
			return RAMPART_SCMI_NOT_FOUND;
		rampart_scmi_append(answer, 0);
		return RAMPART_SCMI_SUCCESS;
	}
	switch (protocol) {
	case RAMPART_SCMI_BASE_PROTOCOL:
		return rampart_scmi_base(service, message, request->words, answer);
	case RAMPART_SCMI_POWER_PROTOCOL:
		return rampart_scmi_power(service, message, request->words, answer);
	case RAMPART_SCMI_CLOCK_PROTOCOL:
		return rampart_scmi_clock(service, message, request->words, answer);
	}
	return rampart_scmi_reset(service, message, request->words, answer);
}

/* Answers a request. After a refusal, the answer has only the status. */
static inline void rampart_scmi_answer(struct rampart_scmi_service *service,
				       const struct rampart_scmi_message *request,
				       struct rampart_scmi_message *answer)
{
	s32 status;

	answer->header = request->header;
	answer->bytes = 8;
	status = rampart_scmi_decide(service, request, answer);
	answer->words[0] = (u32)status;
	if (status != RAMPART_SCMI_SUCCESS)
		answer->bytes = 8;
}

#endif /* _RAMPART_SCMI_H */
