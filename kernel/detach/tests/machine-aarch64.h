/* SPDX-License-Identifier: GPL-2.0-only */
/* What the tests know of arm64. */
#ifndef MACHINE_AARCH64_H
#define MACHINE_AARCH64_H

#include <asm/sigcontext.h>
#include <endian.h>
#include <linux/kexec.h>

#define INITIAL_FCW	0
#define PC_STEP		4
/* Linux broadcasts invalidations. */
#define FLUSHES_BY_BROADCAST	1
/* Calls that do not return to their caller: none more. */
#define MACHINE_CALLS_EXCLUDED

/* An ERET to a kernel address faults at EL0. */
static const int can_begin_anywhere = 1;

static uint64_t *pc_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->pc;
}

static uint64_t *flags_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->pstate;
}

static uint64_t *result_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->x[0];
}

static long call_without_library(long number, long first, long second, long third)
{
	register long x8 asm("x8") = number;
	register long x0 asm("x0") = first;
	register long x1 asm("x1") = second;
	register long x2 asm("x2") = third;

	asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
}

/*
 * Most random words are no instructions; half of them become of the classes that are. QEMU 7.2
 * itself ends at invalid ones of half-precision floating point.
 */
static void make_instructions(unsigned char *code, size_t bytes)
{
	static const uint32_t classes[] = {
		0x10000000, 0x14000000, 0xd5000000, 0xd5380000, 0xd53b0000, 0xd51b0000,
		0xd4000001, 0x38000000, 0xa9000000, 0x0e000000, 0x1e200000, 0x8a000000,
		0x04000000, 0xc0000000, 0xdac10000, 0xd9000000,
	};
	uint32_t *word = (uint32_t *)code;
	size_t one;

	for (one = 0; one < bytes / 4; one++) {
		uint32_t class = classes[word[one] % 16];

		if (word[one] & 0x10)
			word[one] = class | (word[one] >> 8 & 0xfffff);
		if ((word[one] & 0x8f7e0c00) == 0x0e780800)
			word[one] = 0;
	}
	__builtin___clear_cache(code, code + bytes);
}

/* A call that Linux does not have attaches (ATTACH_CALL of the library). */
static int keeps_thread_pointer(void)
{
	register uint64_t x8 asm("x8") = 0x72640001;
	register uint64_t x0 asm("x0") = 0;
	const uint64_t written = 0x123450;
	uint64_t before, found;

	asm volatile("mrs %0, tpidr_el0" : "=r"(before));
	asm volatile("msr tpidr_el0, %1; svc #0" : "+r"(x0) : "r"(written), "r"(x8) : "memory");
	asm volatile("mrs %0, tpidr_el0; msr tpidr_el0, %1" : "=&r"(found) : "r"(before));
	return found == written;
}

extern const char fault_here[];

static void fault_with_registers(void *unused)
{
	static const unsigned char pattern[16] = "vector register";

	asm volatile("ldr q5, %0\n"
		     "mov x1, #0x101\n mov x12, #0x112\n mov x29, #0x129\n mov x30, #0x130\n"
		     "mov x0, #0x18\n"
		     ".globl fault_here\n fault_here:\n"
		     "ldr w2, [x0]\n"
		     : : "m"(pattern)
		     : "x0", "x1", "x2", "x12", "x30", "v5", "memory");
}

static const void *vector_5_of(const ucontext_t *context)
{
	const struct fpsimd_context *state = (const void *)context->uc_mcontext.__reserved;

	return &state->vregs[5];
}

static int has_fault_registers(const ucontext_t *context, const void *address)
{
	const unsigned long long *registers = context->uc_mcontext.regs;

	return context->uc_mcontext.pc == (uintptr_t)fault_here && registers[0] == 0x18 &&
	       registers[1] == 0x101 && registers[12] == 0x112 && registers[29] == 0x129 &&
	       registers[30] == 0x130 && address == (void *)0x18;
}

/* In the memory of QEMU's machine `virt`, above its own kernel, initramfs and device tree. */
#define KERNEL_ADDRESS	0x60000000
#define TREE_ADDRESS	0x70000000
#define ENTRY_ADDRESS	0x70200000

static void *read_file(const char *path, size_t *bytes)
{
	size_t most = 256 << 20;
	char *content = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = open(path, O_RDONLY);
	ssize_t more;

	*bytes = 0;
	while ((more = read(file, content + *bytes, most - *bytes)) > 0)
		*bytes += more;
	close(file);
	return content;
}

/* An address of the initramfs, of 32 or 64 bits, of the device tree's node `chosen`. */
static uint64_t read_chosen(const char *name)
{
	uint64_t value = 0;
	uint32_t *half;
	char path[80];
	size_t bytes;

	snprintf(path, sizeof(path), "/proc/device-tree/chosen/%s", name);
	half = read_file(path, &bytes);
	for (bytes /= 4; bytes; bytes--)
		value = value << 32 | be32toh(*half++);
	return value;
}

static struct kexec_segment segment_of(const char *path, uint64_t address, uint64_t memory)
{
	struct kexec_segment segment = { .mem = (void *)address };

	segment.buf = read_file(path, &segment.bufsz);
	segment.memsz = ((memory ?: segment.bufsz) + 4095) & ~4095UL;
	return segment;
}

/*
 * Debian's arm64 has no kexec_file_load(2). The machine's own device tree is the next
 * kernel's too: with its command line, and the archive where the first one was.
 * Documentation/arch/arm64/booting.rst.
 */
static int load_kernel(const char *kernel, const char *archive, const char *command_line)
{
	static const uint64_t entry[] = {
		0x580000e0580000d1, /* ldr x17, kernel; ldr x0, tree */
		0xaa1f03e2aa1f03e1, /* mov x1, xzr; mov x2, xzr */
		0xd61f0220aa1f03e3, /* mov x3, xzr; br x17 */
		KERNEL_ADDRESS, TREE_ADDRESS,
	};
	uint64_t begin = read_chosen("linux,initrd-start"), end = read_chosen("linux,initrd-end");
	struct kexec_segment segments[] = {
		segment_of(kernel, KERNEL_ADDRESS, 0),
		segment_of(archive, begin, end - begin),
		segment_of("/sys/firmware/fdt", TREE_ADDRESS, 0),
		{ entry, sizeof(entry), (void *)ENTRY_ADDRESS, 4096 },
	};

	(void)command_line;
	return syscall(SYS_kexec_load, (long)ENTRY_ADDRESS, 4L, segments, (long)KEXEC_ARCH_AARCH64);
}

/* Some of the vector registers that calls do not preserve. */
#define FILL_REGISTERS() \
	asm volatile("movi v16.16b, #255; movi v17.16b, #255; movi v22.16b, #255; movi v31.16b, #255" \
		     : : : "v16", "v17", "v22", "v31")
#define READ_REGISTERS(to) \
	asm volatile("stp q16, q17, [%0]; stp q18, q19, [%0, #32]; stp q22, q23, [%0, #64]; " \
		     "stp q30, q31, [%0, #96]" : : "r"(to) : "memory")

#endif /* MACHINE_AARCH64_H */
