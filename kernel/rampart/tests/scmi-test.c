// SPDX-License-Identifier: GPL-2.0-only
/*
 * The answers of scmi.h in a process: those that Linux's client expects, and what no
 * request may do, with random requests.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;

#include "../scmi.h"

#define RATE	((u64)3 << 32 | 24000000)

static bool state[RAMPART_SCMI_KINDS][RAMPART_SCMI_MOST];
static unsigned long changes, wrong;

static void expect(bool holds, const char *what, u32 protocol, u32 message)
{
	if (holds)
		return;
	wrong++;
	printf("%s: protocol %#x, message %u\n", what, protocol, message);
}

static bool exists(struct rampart_scmi_service *service, u32 kind, u32 number)
{
	bool found = kind < RAMPART_SCMI_KINDS && number < service->counts[kind];

	expect(found, "a number that does not exist", kind, number);
	return found;
}

static s32 set(struct rampart_scmi_service *service, u32 kind, u32 number, bool on)
{
	if (exists(service, kind, number))
		state[kind][number] = on;
	changes++;
	return RAMPART_SCMI_SUCCESS;
}

static bool is_on(struct rampart_scmi_service *service, u32 kind, u32 number)
{
	return exists(service, kind, number) && state[kind][number];
}

static s32 reset(struct rampart_scmi_service *service, u32 number)
{
	exists(service, RAMPART_SCMI_RESET, number);
	changes++;
	return RAMPART_SCMI_SUCCESS;
}

static u64 rate(struct rampart_scmi_service *service, u32 number)
{
	exists(service, RAMPART_SCMI_CLOCK, number);
	return RATE;
}

static struct rampart_scmi_service service = {
	.counts = { 3, 2, 1 }, .set = set, .is_on = is_on, .reset = reset, .rate = rate,
};

/* Asks, and compares status and number of words of the answer. */
static const u32 *ask(u32 protocol, u32 message, u32 count, const u32 *words, s32 status,
		      u32 answered)
{
	static struct rampart_scmi_message answer;
	struct rampart_scmi_message request = {
		.header = message | protocol << 10 | 7 << 18, .bytes = 4 + 4 * count,
	};

	memset(&answer, 0x55, sizeof(answer));
	memcpy(request.words, words, 4 * count);
	rampart_scmi_answer(&service, &request, &answer);
	expect(answer.header == request.header, "another header", protocol, message);
	expect((s32)answer.words[0] == status, "another status", protocol, message);
	expect(answer.bytes == 8 + 4 * answered, "another length", protocol, message);
	return answer.words + 1;
}

#define WORDS(...)	((const u32[]){ __VA_ARGS__, 0, 0, 0, 0 })

static int answers(void)
{
	const u32 none = 0;

	expect(*ask(0x10, 0, 0, &none, 0, 1) == 0x20000, "version", 0x10, 0);
	expect(*ask(0x10, 1, 0, &none, 0, 1) == 0x103, "protocols", 0x10, 1);
	expect(!strcmp((const char *)ask(0x10, 3, 0, &none, 0, 4), "rampart"), "name", 0x10, 3);
	expect(ask(0x10, 6, 1, WORDS(0), 0, 2)[1] == 0x111614, "list", 0x10, 6);
	expect(ask(0x10, 6, 1, WORDS(2), 0, 2)[1] == 0x11, "rest of the list", 0x10, 6);
	ask(0x10, 6, 1, WORDS(3), 0, 1);
	ask(0x10, 6, 1, WORDS(4), RAMPART_SCMI_INVALID, 0);
	ask(0x10, 7, 1, WORDS(1), RAMPART_SCMI_NOT_FOUND, 0);
	ask(0x10, 8, 0, &none, RAMPART_SCMI_NOT_SUPPORTED, 0);
	expect(*ask(0x14, 1, 0, &none, 0, 1) == 3, "clocks", 0x14, 1);
	ask(0x14, 7, 2, WORDS(2, 1), 0, 0);
	expect(*ask(0x14, 3, 1, WORDS(2), 0, 5) == 1, "enabled", 0x14, 3);
	ask(0x14, 7, 2, WORDS(2, 0), 0, 0);
	expect(!*ask(0x14, 3, 1, WORDS(2), 0, 5), "disabled", 0x14, 3);
	ask(0x14, 7, 2, WORDS(3, 1), RAMPART_SCMI_NOT_FOUND, 0);
	ask(0x14, 7, 2, WORDS(2, 2), RAMPART_SCMI_INVALID, 0);
	ask(0x14, 7, 1, WORDS(2), RAMPART_SCMI_PROTOCOL, 0);
	expect(ask(0x14, 6, 1, WORDS(0), 0, 2)[1] == 3, "rate", 0x14, 6);
	expect(ask(0x14, 4, 2, WORDS(0, 0), 0, 3)[0] == 1, "rates", 0x14, 4);
	ask(0x14, 5, 4, WORDS(0, 1, 24000000, 3), 0, 0);
	ask(0x14, 5, 4, WORDS(0, 1, 24000001, 3), RAMPART_SCMI_DENIED, 0);
	ask(0x14, 5, 4, WORDS(0, 3, 24000000, 3), RAMPART_SCMI_NOT_FOUND, 0);
	expect(*ask(0x16, 1, 0, &none, 0, 1) == 2, "resets", 0x16, 1);
	ask(0x16, 4, 3, WORDS(1, 0, 0), 0, 0);
	expect(state[RAMPART_SCMI_RESET][1], "deasserted", 0x16, 4);
	ask(0x16, 4, 3, WORDS(1, 2, 0), 0, 0);
	expect(!state[RAMPART_SCMI_RESET][1], "asserted", 0x16, 4);
	ask(0x16, 4, 3, WORDS(1, 1, 0), 0, 0);
	ask(0x16, 4, 3, WORDS(1, 4, 0), RAMPART_SCMI_INVALID, 0);
	ask(0x16, 4, 3, WORDS(2, 0, 0), RAMPART_SCMI_NOT_FOUND, 0);
	expect(*ask(0x11, 1, 0, &none, 0, 4) == 1, "power domains", 0x11, 1);
	ask(0x11, 4, 3, WORDS(0, 0, 0), 0, 0);
	expect(!*ask(0x11, 5, 1, WORDS(0), 0, 1), "on", 0x11, 5);
	ask(0x11, 4, 3, WORDS(0, 0, 1U << 30), 0, 0);
	expect(*ask(0x11, 5, 1, WORDS(0), 0, 1) == 1U << 30, "off", 0x11, 5);
	ask(0x11, 4, 3, WORDS(1, 0, 0), RAMPART_SCMI_INVALID, 0);
	ask(0x11, 4, 3, WORDS(0, 1, 0), RAMPART_SCMI_NOT_FOUND, 0);
	expect(!*ask(0x14, 2, 1, WORDS(7), 0, 1), "attributes", 0x14, 2);
	ask(0x14, 2, 1, WORDS(8), RAMPART_SCMI_NOT_FOUND, 0);
	ask(0x14, 2, 1, WORDS(0x107), RAMPART_SCMI_NOT_FOUND, 0);
	ask(0x15, 0, 0, &none, RAMPART_SCMI_NOT_SUPPORTED, 0);
	return wrong != 0;
}

/* xorshift64 (Marsaglia 2003). */
static u64 next_random(void)
{
	static u64 random = 88172645463325252ULL;

	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	return random;
}

/* Random requests: half of them nearly right. */
static int hostile(unsigned long count)
{
	static const u32 protocols[] = { 0x10, 0x11, 0x14, 0x16, 0x13 };
	unsigned long index, accepted = 0, refused = 0;

	for (index = 0; index < count; index++) {
		struct rampart_scmi_message request, answer;
		u32 word, kind;

		/* Lists of protocols, and numbers, of cells with much, little and nothing. */
		for (kind = 0; kind < RAMPART_SCMI_KINDS; kind++)
			service.counts[kind] = next_random() % 4 ? next_random() % 4 :
				RAMPART_SCMI_MOST;
		for (word = 0; word < RAMPART_SCMI_WORDS; word++)
			request.words[word] = next_random() % 4 ? next_random() % 5 : next_random();
		request.header = next_random();
		if (next_random() % 4)
			request.header = protocols[next_random() % 5] << 10 | next_random() % 10;
		request.bytes = next_random() % 8 ? 4 + 4 * (next_random() % 5) : next_random();
		if (next_random() % 2)
			request.bytes = 4 + 4 * rampart_scmi_length(request.header >> 10 & 0xff,
								    request.header & 0xff);
		memset(&answer, 0x55, sizeof(answer));
		rampart_scmi_answer(&service, &request, &answer);
		expect(answer.header == request.header && answer.bytes >= 8 &&
		       answer.bytes <= 4 + sizeof(answer.words) && !(answer.bytes % 4),
		       "an invalid answer", request.header, request.bytes);
		accepted += !answer.words[0];
		refused += !!answer.words[0];
		if (answer.words[0])
			expect(answer.bytes == 8, "a refusal with words", request.header, 0);
	}
	printf("accepted %lu, refused %lu, changes %lu\n", accepted, refused, changes);
	return wrong || accepted < count / 50 || refused < count / 50 || changes < count / 1000;
}

int main(int count, char **arguments)
{
	if (count == 2 && !strcmp(arguments[1], "answers"))
		return answers();
	if (count == 3 && !strcmp(arguments[1], "hostile"))
		return hostile(strtoul(arguments[2], NULL, 10));
	return 2;
}
