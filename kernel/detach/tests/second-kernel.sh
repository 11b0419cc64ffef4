#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first program of a kernel that was booted by kexec.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
online=$(/bin/busybox cat /sys/devices/system/cpu/online)
result=failed
[ "$online" = 0-3 ] && result=passed
echo "case another_kernel_is_booted $result: CPUs $online are online"
echo "cases end"
/bin/busybox poweroff -f
