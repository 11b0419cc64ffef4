#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs the example control_loop detached while a build and an IO load run, prints the interrupts on its CPU, kills it,
# and shows that Linux uses the CPU again. As root, with the module loaded:
#
#   demonstration.sh CPU SECONDS
set -eu
cpu=$1 seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
device=/sys/devices/virtual/misc/rampart-detach

wait_for() {
    for _ in $(seq 300); do
        [ "$(cat "$1")" != "$2" ] || return 0
        sleep 0.1
    done
    echo "demonstration: $1: expected $2, found $(cat "$1")" >&2
    exit 1
}

control_loop "$cpu" 1000000 &
loop=$!
wait_for $device/running "$cpu"
echo "the control loop runs on CPU $cpu, a build and an IO load on CPUs $(cat /sys/devices/system/cpu/online)"
sh "$here/beside_loads.sh" build,io sleep "$seconds"
interrupts=$(cat /proc/$loop/fdinfo/* | sed -n 's/^interrupts:[^0-9]*//p')
echo "interrupts on CPU $cpu: $interrupts"
kill -9 $loop
wait_for "/sys/devices/system/cpu/cpu$cpu/online" 1
# The field of the CPU, as proc(5) numbers them.
echo "after kill -9 Linux runs a program on CPU $(taskset -c "$cpu" cat /proc/self/stat | cut -d ' ' -f 39)"
[ "$interrupts" = 0 ]
