#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs a program while loads run, and ends the loads after it:
#
#   beside_loads.sh LOADS PROGRAM [ARGUMENT]...
#
#   LOADS   idle, build, io, or build,io
#
# The environment variables BUILD and IO are the commands that are repeated, two of each at a time. Without them
# they are small ones that need no compiler and no disk: many short processes, pipes and files; a file that is
# written, synchronised and read.
set -eu
loads=$1
shift
directory=$(mktemp -d)
# What a load has started may still write.
trap 'rm -rf "$directory" || { sleep 1; rm -rf "$directory"; }' EXIT
: "${BUILD:="seq 3000 | sed 's/1/one/' | sort | gzip -c >built.\$\$; cp built.\$\$ copy.\$\$; rm built.\$\$ copy.\$\$"}"
: "${IO:="dd if=/dev/zero of=file.\$\$ bs=64k count=64 conv=fsync; cat file.\$\$ | wc -c; rm file.\$\$"}"

repeat() {
    trap 'kill $child 2>/dev/null; exit' TERM
    while :; do
        sh -c "$1" >/dev/null 2>&1 &
        child=$!
        wait $child || true
    done
}

started=
start() {
    for _ in 1 2; do
        (cd "$directory" && repeat "$1") &
        started="$started $!"
    done
}

case $loads in
idle) ;;
build) start "$BUILD" ;;
io) start "$IO" ;;
build,io) start "$BUILD"; start "$IO" ;;
*) echo "beside_loads: $loads: expected idle, build, io or build,io" >&2; exit 2 ;;
esac
status=0
"$@" || status=$?
for load in $started; do
    kill "$load"
    wait "$load" || true
done
exit $status
