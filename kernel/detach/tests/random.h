/* SPDX-License-Identifier: GPL-2.0-only */
/* Random programs and processor states, detached. */
#ifndef RANDOM_H
#define RANDOM_H

/* The reader of the output sees that the program continues. */
static void report_progress(int done)
{
	if (done % 100 == 99) {
		printf("%d done\n", done + 1);
		fflush(stdout);
	}
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t value = *state += 0x9e3779b97f4a7c15;

	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

/*
 * Without libraries: registers and instructions are random, also the register that points to
 * the C library's memory of the thread, which stays as the program left it.
 */
static void run_random(const void *argument)
{
	uint64_t state = *(const uint64_t *)argument;
	struct rampart_detach_run run = { .flags = RAMPART_DETACH_BEGIN, .fcw = INITIAL_FCW };
	uint64_t *registers = (uint64_t *)&run.registers;
	unsigned char *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static unsigned char extended[4096] __attribute__((aligned(64)));
	size_t one;
	long result;
	int turn;

	for (one = 0; one < 8192; one++)
		code[one] = next_random(&state);
	for (one = 0; one < sizeof(run.registers) / 8; one++) {
		registers[one] = next_random(&state);
		if (next_random(&state) % 2)
			registers[one] = (uintptr_t)code + next_random(&state) % 8192;
	}
	run.mxcsr = next_random(&state);
	make_instructions(code, 8192);
	run.buffer = (uintptr_t)extended;
	run.bytes = sizeof(extended);
	for (turn = 0; turn < 50; turn++) {
		*pc_of(&run.registers) = (uintptr_t)code + next_random(&state) % 8192 / PC_STEP * PC_STEP;
		result = call_without_library(SYS_ioctl, device, RAMPART_DETACH_RUN, (long)&run);
		if (result)
			_exit(result == -EINVAL ? 0 : 98);
		run.flags = run.exit == RAMPART_DETACH_SYSTEM_CALL ? 0 : RAMPART_DETACH_BEGIN;
		*result_of(&run.registers) = next_random(&state);
	}
}

/* An endless loop with every flag of the processor's state. */
static void run_all_flags(const void *unused)
{
	struct rampart_detach_run run = { .flags = RAMPART_DETACH_BEGIN, .fcw = INITIAL_FCW };
	static unsigned char extended[4096] __attribute__((aligned(64)));
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(code, endless_code, sizeof(endless_code));
	__builtin___clear_cache(code, code + sizeof(endless_code));
	*pc_of(&run.registers) = (uintptr_t)code;
	*flags_of(&run.registers) = ~0ULL;
	run.buffer = (uintptr_t)extended;
	run.bytes = sizeof(extended);
	ioctl(device, RAMPART_DETACH_RUN, &run);
	_exit(98);
}

static void test_fuzz(int times, uint64_t seed)
{
	int bad = 0, one, status;

	for (one = 0; one < times; one++) {
		uint64_t this = seed + one;

		report_progress(one);
		status = in_process(run_random, &this, 200);
		if (status > 0 || !serves()) {
			check_seen("random_programs_do_no_harm", 0, "seed %llu: status %x",
				   (unsigned long long)this, status);
			bad++;
		}
	}
	check_seen("random_programs_do_no_harm", !bad, "%d programs", times);
}

#endif /* RANDOM_H */
