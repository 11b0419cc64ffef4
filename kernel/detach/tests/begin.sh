#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first program of a machine that tests detached threads: this file, the cases, end.sh.
for program in mount mkdir insmod rmmod cat dmesg sleep kill seq dd taskset grep sed poweroff true ifconfig tr ls start-stop-daemon \
    mktemp rm cp wc sort gzip cut dirname pidof head; do
    /bin/busybox ln -s busybox /bin/$program
done
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
dmesg -n 1
ifconfig lo 127.0.0.1
echo "release $(cat /proc/sys/kernel/osrelease)"
taken=/sys/devices/virtual/misc/rampart-detach/taken
running=/sys/devices/virtual/misc/rampart-detach/running

# Prints the line of a case: report NAME passed|failed|left-out WHAT-WAS-SEEN. tests/src/guest_cases.rs has its form.
report() {
    echo "case $1 $2: $(echo "$3" | tr '\n\t' '  ')"
}
# is NAME FOUND EXPECTED
is() {
    if [ "$2" = "$3" ]; then report "$1" passed "$2"; else report "$1" failed "'$2', expected '$3'"; fi
}
# has NAME TEXT PART
has() {
    case $2 in
    *"$3"*) report "$1" passed "$3" ;;
    *) report "$1" failed "no '$3' in '$2'" ;;
    esac
}
# succeeds NAME COMMAND...; refused NAME COMMAND...
succeeds() {
    name=$1
    shift
    if "$@" >/tmp/succeeds 2>&1; then report "$name" passed "$*"; else report "$name" failed "$*: $? $(cat /tmp/succeeds)"; fi
}
refused() {
    name=$1
    shift
    if "$@" >/tmp/refused 2>&1; then report "$name" failed "$*: done"; else report "$name" passed "$? $(cat /tmp/refused)"; fi
}
# Waits until a file has this content: wait_for FILE CONTENT
wait_for() {
    for _ in $(seq 600); do
        [ "$(cat "$1")" = "$2" ] && return
        sleep 0.1
    done
    report every_awaited_state_is_reached failed "$1 is $(cat "$1"), not $2"
}
# Waits for the test, which turns QEMU's log on and off meanwhile.
step() {
    echo "step $1"
    read -r _
}
# Starts a program that is linked with the libraries in /lib.
linked() {
    program=$1
    shift
    /lib/loader --library-path /lib "/bin/$program" "$@"
}
succeeds the_driver_is_loaded insmod /detach.ko
dmesg -c >/dev/null
