// SPDX-License-Identifier: GPL-2.0-only
/*
 * rampart: launches the partitioning hypervisor under an unpatched kernel, or
 * attaches to one that has started this kernel, and moves CPUs and memory
 * between Linux and cells.
 *
 * Locking: rampart.lock serialises all calls and thereby all hypercalls, except
 * that of the watcher (status.c), which ends before the hypervisor does.
 * rampart.view guards the data for mmap(2), see view.c.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <linux/suspend.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "driver.h"

struct rampart_driver rampart = {
	.lock = __MUTEX_INITIALIZER(rampart.lock),
	.view = __MUTEX_INITIALIZER(rampart.view),
};

static struct miscdevice rampart_device;

static long rampart_state(void __user *address)
{
	struct rampart_state state = { .revision = RAMPART_REVISION };
	u32 number;

	mutex_lock(&rampart.lock);
	state.enabled = rampart.enabled;
	if (rampart.enabled) {
		state.memory = rampart.memory;
		state.memory_bytes = rampart.memory_bytes;
	}
	for (number = 0; number < RAMPART_MAXIMUM_CELLS; number++)
		if (rampart.members[number])
			state.cells |= BIT_ULL(number);
	mutex_unlock(&rampart.lock);
	return copy_to_user(address, &state, sizeof(state)) ? -EFAULT : 0;
}

static int rampart_cell_call(u32 command, struct rampart_cell *request)
{
	if (request->reserved)
		return -EINVAL;
	if (request->cell >= RAMPART_MAXIMUM_CELLS || !rampart.members[request->cell])
		return -ENOENT;
	if (command == RAMPART_DESTROY)
		return rampart_cell_destroy(request->cell, &request->answer);
	if (command == RAMPART_START && !rampart_is_running(request->cell))
		rampart_scmi_release(request->cell);
	rampart_call(command == RAMPART_START ? RAMPART_CALL_CELL_START : RAMPART_CALL_CELL_STOP,
		     request->cell, 0, &request->answer);
	if (!rampart_is_running(request->cell))
		rampart_scmi_release(request->cell);
	return rampart_error(&request->answer);
}

static int rampart_ring(struct rampart_ring *request)
{
	if (request->reserved)
		return -EINVAL;
	if (!rampart.enabled)
		return -ENODEV;
	rampart_call(RAMPART_CALL_DOORBELL, request->index, 0, &request->answer);
	return rampart_error(&request->answer);
}

static long rampart_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *address = (void __user *)argument;
	union {
		struct rampart_enable enable;
		struct rampart_create create;
		struct rampart_load load;
		struct rampart_cell cell;
		struct rampart_configuration configuration;
		struct rampart_ring doorbell;
		struct rampart_network network;
		struct rampart_scmi scmi;
	} request = {};
	size_t bytes = _IOC_SIZE(command);
	long error;

	if (command == RAMPART_STATE)
		return rampart_state(address);
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (bytes > sizeof(request))
		return -ENOTTY;
	if (bytes && copy_from_user(&request, address, bytes))
		return -EFAULT;
	mutex_lock(&rampart.lock);
	switch (command) {
	case RAMPART_ENABLE:
		error = rampart_launch(&request.enable, rampart_device.this_device);
		break;
	case RAMPART_DISABLE:
		error = rampart_leave();
		break;
	case RAMPART_CREATE:
		error = rampart_cell_create(&request.create);
		break;
	case RAMPART_LOAD:
		error = request.load.reserved ? -EINVAL : rampart_cell_load(&request.load);
		break;
	case RAMPART_START:
	case RAMPART_STOP:
	case RAMPART_DESTROY:
		error = rampart_cell_call(command, &request.cell);
		break;
	case RAMPART_DOORBELL:
		error = rampart_ring(&request.doorbell);
		break;
	case RAMPART_NETWORK:
		error = rampart_network_create(&request.network);
		break;
	case RAMPART_SCMI:
		error = rampart_scmi_create(&request.scmi);
		break;
	case RAMPART_CONFIGURATION:
		error = rampart_view_configuration(&request.configuration);
		break;
	default:
		error = -ENOTTY;
	}
	mutex_unlock(&rampart.lock);
	/* Return the hypervisor's answer in every case. */
	if (bytes && copy_to_user(address, &request, bytes) && !error)
		error = -EFAULT;
	return error;
}

static int rampart_open(struct inode *inode, struct file *file)
{
	struct rampart_opening *opening = kzalloc(sizeof(*opening), GFP_KERNEL);

	if (!opening)
		return -ENOMEM;
	file->private_data = opening;
	rampart_view_open(opening, file);
	return stream_open(inode, file);
}

static int rampart_release(struct inode *inode, struct file *file)
{
	rampart_view_close(file->private_data);
	kfree(file->private_data);
	return 0;
}

static const struct file_operations rampart_operations = {
	.owner = THIS_MODULE,
	.open = rampart_open,
	.release = rampart_release,
	.read = rampart_status_read,
	.poll = rampart_status_poll,
	.mmap = rampart_view_map,
	.unlocked_ioctl = rampart_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice rampart_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rampart",
	.fops = &rampart_operations,
	.groups = rampart_groups,
	.mode = 0600,
};

/* The next kernel may need EL2. If there are cells, they keep running and EL2 stays in use. */
static int rampart_reboot(struct notifier_block *block, unsigned long event, void *unused)
{
	mutex_lock(&rampart.lock);
	if (rampart.enabled && !rampart_has_cells())
		rampart_leave();
	mutex_unlock(&rampart.lock);
	return NOTIFY_DONE;
}

static struct notifier_block rampart_reboot_block = {
	.notifier_call = rampart_reboot,
};

/*
 * Refuses to suspend, to hibernate and to restore an image while the hypervisor is enabled: the
 * firmware and the resumed image would return without it. Until the end of a suspension, the
 * launch is refused: tasks are frozen only after this.
 */
static int rampart_sleep(struct notifier_block *block, unsigned long event, void *unused)
{
	bool begins = event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE ||
		      event == PM_RESTORE_PREPARE;
	bool enabled;

	mutex_lock(&rampart.lock);
	enabled = rampart.enabled;
	rampart.suspending = begins && !enabled;
	mutex_unlock(&rampart.lock);
	if (!begins || !enabled)
		return NOTIFY_DONE;
	pr_err("cannot suspend while the hypervisor is enabled; run rampart cell disable first\n");
	return notifier_from_errno(-EBUSY);
}

static struct notifier_block rampart_sleep_block = {
	.notifier_call = rampart_sleep,
};

static int __init rampart_init(void)
{
	int error = misc_register(&rampart_device);

	if (error)
		return error;
	error = rampart_scmi_begin();
	if (error)
		goto deregister;
	error = rampart_status_begin(rampart_device.this_device);
	if (error)
		goto scmi;
	error = register_reboot_notifier(&rampart_reboot_block);
	if (error)
		goto end;
	error = register_pm_notifier(&rampart_sleep_block);
	if (error)
		goto reboots;
	/* The kernel log has the reason of a failure; the driver then has no hypervisor. */
	mutex_lock(&rampart.lock);
	rampart_attach();
	mutex_unlock(&rampart.lock);
	return 0;

reboots:
	unregister_reboot_notifier(&rampart_reboot_block);
end:
	rampart_status_end();
scmi:
	rampart_scmi_exit();
deregister:
	misc_deregister(&rampart_device);
	return error;
}

/* Not called while the hypervisor is enabled: it holds a reference to the module. */
static void __exit rampart_end(void)
{
	unregister_pm_notifier(&rampart_sleep_block);
	unregister_reboot_notifier(&rampart_reboot_block);
	rampart_status_end();
	misc_deregister(&rampart_device);
	rampart_scmi_exit();
}

module_init(rampart_init);
module_exit(rampart_end);

MODULE_DESCRIPTION("Launches the Rampart partitioning hypervisor and ends it");
MODULE_AUTHOR("The Rampart authors");
MODULE_LICENSE("GPL");
MODULE_FIRMWARE(RAMPART_FIRMWARE);
MODULE_FIRMWARE(RAMPART_FIRMWARE_SMMU);
MODULE_FIRMWARE(RAMPART_FIRMWARE_GICV2);
