/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest of KVM in the process of a detached thread: both use the same memory. The
 * guest counts for ever, and leaves to the program at each count unless that is off.
 */
#ifndef GUEST_H
#define GUEST_H

#include <linux/kvm.h>

#define GUEST_BYTES	0x4000
#define GUEST_CODE	0x1000
#define GUEST_COUNTER	0x2000

static struct {
	int machine, processor;
	struct kvm_run *run;
	volatile uint16_t *counter;
	volatile int stop;
	volatile unsigned long exits;
} guest;

#ifdef __x86_64__
/* In real mode: INC of the counter, OUT, and the jump back. */
static const unsigned char guest_code[] = { 0xff, 0x06, 0x00, 0x20, 0xe6, 0x10, 0xeb, 0xf8 };
static const unsigned char guest_endless_code[] = { 0xeb, 0xfe };

static int set_guest_registers(void)
{
	struct kvm_regs registers = { .rip = GUEST_CODE, .rflags = 2 };
	struct kvm_sregs special;

	if (ioctl(guest.processor, KVM_GET_SREGS, &special))
		return -1;
	special.cs.base = 0;
	special.cs.selector = 0;
	return ioctl(guest.processor, KVM_SET_SREGS, &special) ?:
	       ioctl(guest.processor, KVM_SET_REGS, &registers);
}

#define GUEST_EXIT	KVM_EXIT_IO
#else
/* Without translation: X1 has the counter's address, X2 one without memory. */
static const uint32_t guest_code[] = {
	0x79400020, /* ldrh w0, [x1] */
	0x11000400, /* add w0, w0, #1 */
	0x79000020, /* strh w0, [x1] */
	0xb9000040, /* str w0, [x2] */
	0x17fffffc, /* b the first one */
};
static const uint32_t guest_endless_code[] = { 0x14000000 };

static int set_guest_register(uint64_t offset, uint64_t value)
{
	struct kvm_one_reg one = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | offset / 4,
		.addr = (uintptr_t)&value,
	};

	return ioctl(guest.processor, KVM_SET_ONE_REG, &one);
}

static int set_guest_registers(void)
{
	struct kvm_vcpu_init target;

	return ioctl(guest.machine, KVM_ARM_PREFERRED_TARGET, &target) ?:
	       ioctl(guest.processor, KVM_ARM_VCPU_INIT, &target) ?:
	       set_guest_register(offsetof(struct kvm_regs, regs.pc), GUEST_CODE) ?:
	       set_guest_register(offsetof(struct kvm_regs, regs.regs[1]), GUEST_COUNTER) ?:
	       set_guest_register(offsetof(struct kvm_regs, regs.regs[2]), 0x10000000);
}

#define GUEST_EXIT	KVM_EXIT_MMIO
#endif

static int make_guest(const void *code, size_t bytes)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct kvm_userspace_memory_region memory = { .memory_size = GUEST_BYTES };
	char *content = mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(content + GUEST_CODE, code, bytes);
	memory.userspace_addr = (uintptr_t)content;
	guest.counter = (uint16_t *)(content + GUEST_COUNTER);
	guest.machine = ioctl(kvm, KVM_CREATE_VM, 0);
	guest.processor = ioctl(guest.machine, KVM_CREATE_VCPU, 0);
	guest.run = mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED,
			 guest.processor, 0);
	close(kvm);
	return guest.run == MAP_FAILED || set_guest_registers() ||
	       ioctl(guest.machine, KVM_SET_USER_MEMORY_REGION, &memory);
}

static void *run_guest(void *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((intptr_t)cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	while (!guest.stop && !ioctl(guest.processor, KVM_RUN, 0) &&
	       guest.run->exit_reason == GUEST_EXIT)
		guest.exits++;
	return NULL;
}

static int guest_moves(void)
{
	unsigned long before = guest.exits;
	int turn;

	for (turn = 0; turn < 60000 && guest.exits < before + 20; turn++)
		usleep(1000);
	return guest.exits >= before + 20;
}

/* Follows the guest's counter until it is far, or begins again in another page. */
static void watch_guest(void *turns)
{
	uint16_t before = *guest.counter, now;
	unsigned long turn;

	for (turn = 0; turn < 100; before = now) {
		now = *guest.counter;
		turn += now != before;
	}
	*(unsigned long *)turns = turn;
}

static void *watch_detached(void *turns)
{
	rampart_run_detached(core, watch_guest, turns);
	return NULL;
}

/* In a process of its own, with the CPU of another holder and one that it takes itself. */
static void use_guest(const void *argument)
{
	int other = *(const int *)argument, file = open_device(), failed = 0;
	unsigned long turns = 0;
	pthread_t runner, watcher;

	if (make_guest(guest_code, sizeof(guest_code)))
		_exit(2);
	pthread_create(&runner, NULL, run_guest, (void *)(intptr_t)other);
	if (!guest_moves())
		_exit(3);
	/* The detached thread and the guest see the same page, also after it is another one. */
	pthread_create(&watcher, NULL, watch_detached, &turns);
	usleep(20000);
	*guest.counter = 50000;
	madvise((void *)guest.counter, 4096, MADV_DONTNEED);
	pthread_join(watcher, NULL);
	if (turns != 100 || *guest.counter >= 50000)
		_exit(4);
	/* The CPU on which it runs is taken and given back. */
	if (ioctl(file, RAMPART_DETACH_TAKE, other) || !guest_moves())
		_exit(5);
	failed = ioctl(file, RAMPART_DETACH_GIVE) || !guest_moves();
	guest.stop = 1;
	pthread_join(runner, NULL);
	_exit(failed ? 6 : 0);
}

static void *interrupt_guest(void *thread)
{
	while (!guest.stop) {
		usleep(20000);
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	}
	return NULL;
}

/* The thread that runs the guest is detached: it attaches, so that a signal ends the call. */
static void run_guest_detached(const void *unused)
{
	pthread_t self = pthread_self(), other;
	int ended;

	signal(SIGUSR1, on_user_signal);
	if (make_guest(guest_endless_code, sizeof(guest_endless_code)) || rampart_detach(core))
		_exit(2);
	pthread_create(&other, NULL, interrupt_guest, &self);
	if (rampart_detach(core))
		_exit(3);
	/* The first signal may come before the call. */
	ended = refused(ioctl(guest.processor, KVM_RUN, 0), EINTR);
	guest.stop = 1;
	pthread_join(other, NULL);
	_exit(ended && !rampart_is_detached(core) ? 0 : 4);
}

static void test_guest(int cpu)
{
	int other = cpu + 1, status;

	if (take(cpu)) {
		check_seen("a_guest_of_kvm_in_the_process", 0, "CPU %d is not taken", cpu);
		return;
	}
	status = in_process(use_guest, &other, 30000);
	check_seen("a_guest_of_kvm_in_the_process", !status && serves(), "status %x", status);
	status = in_process(run_guest_detached, NULL, 10000);
	check_seen("a_thread_attaches_to_run_a_guest", !status && serves(), "status %x", status);
	give();
}

#endif /* GUEST_H */
