# SPDX-License-Identifier: Apache-2.0 OR MIT
# The end of a machine that tests detached threads.
wait_for /sys/devices/system/cpu/online 0-3
report every_awaited_state_is_reached passed "CPUs $(cat /sys/devices/system/cpu/online) are online"
succeeds the_driver_is_unloaded_and_loaded_again sh -c 'rmmod detach && insmod /detach.ko'
dmesg | sed 's/^/log /'
# The machine ends with a taken CPU.
/control_loop 2 1000 &
wait_for $taken 2
[ -e /kernel ] && /detach-test kexec /kernel /second "$(cat /proc/cmdline)"
echo "cases end"
poweroff -f
