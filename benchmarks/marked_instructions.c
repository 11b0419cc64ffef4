// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts the instructions of each CPU of an x86-64 machine, as a plugin of QEMU, and
 * writes the counts whenever a program executes a mark. A mark is the instruction
 * `nopl 0x524d00NN(%rax)`, which does nothing: NN is the number of the mark.
 *
 * A block of translated code counts when it begins, so an exception in its middle
 * counts the rest too. Option: out=FILE, see struct record.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

enum { CPUS = 4 };

/* What the file has for each mark, in their order. */
struct record {
	uint64_t mark;
	/* Instructions of each CPU since the machine started. */
	uint64_t instructions[CPUS];
};

static const unsigned char mark_code[] = { 0x0f, 0x1f, 0x80 };
static const unsigned char mark_end[] = { 0x00, 0x4d, 0x52 };

static uint64_t counts[CPUS];
static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(unsigned int cpu, void *instructions)
{
	if (cpu < CPUS)
		__atomic_fetch_add(&counts[cpu], (uintptr_t)instructions, __ATOMIC_RELAXED);
}

static void write_record(unsigned int cpu, void *mark)
{
	struct record record = { .mark = (uintptr_t)mark };

	(void)cpu;
	for (int one = 0; one < CPUS; one++)
		record.instructions[one] = __atomic_load_n(&counts[one], __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	fwrite(&record, sizeof(record), 1, out);
	pthread_mutex_unlock(&lock);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t number = qemu_plugin_tb_n_insns(block);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(block, count, QEMU_PLUGIN_CB_NO_REGS,
					     (void *)(uintptr_t)number);
	for (size_t index = 0; index < number; index++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, index);
		const unsigned char *code = qemu_plugin_insn_data(instruction);

		if (qemu_plugin_insn_size(instruction) == 7 &&
		    !memcmp(code, mark_code, sizeof(mark_code)) &&
		    !memcmp(code + 4, mark_end, sizeof(mark_end)))
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, write_record,
							       QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(uintptr_t)code[3]);
	}
}

static void end(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	fclose(out);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "marked instructions: expected out=FILE\n");
		return -1;
	}
	out = fopen(argv[0] + 4, "wb");
	if (!out) {
		perror(argv[0]);
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	qemu_plugin_register_atexit_cb(id, end, NULL);
	return 0;
}
