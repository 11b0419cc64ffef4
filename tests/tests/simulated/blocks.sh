# SPDX-License-Identifier: Apache-2.0 OR MIT
# The module `blocksys` in a simulated machine, whose standard input is an archive of the programs and modules. All cases in
# one machine, because booting it takes longer than they do.
set -u
mkdir /tmp/blocks && tar -x -C /tmp/blocks && cd /tmp/blocks || exit 9
module=modules/$(uname -r)/blocksys.ko
[ -e "$module" ] || { echo "no $module"; exit 9; }
grep -q '^blocksys ' /proc/modules && rmmod blocksys

# report NAME passed|failed WHAT-WAS-SEEN: tests/src/guest_cases.rs has the form.
report() { echo "case $1 $2: $(echo "$3" | tr '\n\t' '  ')"; }
succeeds() {
    name=$1
    shift
    if output=$("$@" 2>&1); then report "$name" passed "$*"; else report "$name" failed "$*: $? $output"; fi
}
refused() {
    name=$1 part=$2
    shift 2
    if output=$("$@" 2>&1); then
        report "$name" failed "$*: done"
    else
        case $output in
        *"$part"*) report "$name" passed "$output" ;;
        *) report "$name" failed "no '$part' in '$output'" ;;
        esac
    fi
}
wait_until() {
    for _ in $(seq 600); do
        "$@" && return
        sleep 0.1
    done
    report every_awaited_state_is_reached failed "$*"
}

for wrong in longest_us=0 longest_us=1000001 share_percent=0 share_percent=91; do
    refused wrong_parameters_are_refused '' insmod "$module" $wrong
    grep -q '^blocksys ' /proc/modules && rmmod blocksys
done
dmesg -C
succeeds the_module_is_loaded insmod "$module"
./blocksys-test all 1 2 >blocksys-test.txt
result=$?
cat blocksys-test.txt
[ $result = 0 ] && result=passed || result=failed
report the_device_refuses_and_makes_blocks $result "$(grep -c '^ok ' blocksys-test.txt) checks; $(grep '^FAILED' blocksys-test.txt)"

./blocksys-test hold 1 &
holder=$!
wait_until sh -c "grep -q '^blocksys .* 1 ' /proc/modules"
refused a_module_in_use_is_not_unloaded '' rmmod blocksys
kill -9 $holder
wait $holder 2>/dev/null
succeeds the_module_is_unloaded_after_its_owner_was_killed rmmod blocksys
turns=0
while [ $turns -lt 100 ] && insmod "$module" && rmmod blocksys; do turns=$((turns + 1)); done
[ $turns = 100 ] && result=passed || result=failed
report the_module_is_loaded_and_unloaded_a_hundred_times $result "$turns times"

# cyclictest, at the highest priority, sees the blocks too: one begins shortly before a wake-up.
insmod "$module" longest_us=50000 share_percent=25
cyclictest -q -m -t 1 -a 1 -p 99 -i 1000 -D 600 >cyclictest.txt &
cyclictest=$!
wait_until sh -c "[ \$(ls /proc/$cyclictest/task | wc -l) -gt 1 ]"
succeeds blocks_are_made_beside_cyclictest ./rampart block --cpus 1 --length 40ms --count 10 --pause 160ms --kind module
kill -INT $cyclictest
wait $cyclictest
most=$(sed -n 's/.*Max: *//p' cyclictest.txt)
[ "${most:-0}" -ge 36000 ] && result=passed || result=failed
report cyclictest_sees_a_block $result "$most µs"
# Refusals name the limits of the module's parameters.
refused a_block_longer_than_the_limit_is_refused '50 ms or less' ./rampart block --cpus 1 --length 51ms --pause 1s
refused a_larger_share_than_the_limit_is_refused '25 % or less' ./rampart block --cpus 1 --length 40ms --pause 100ms
rmmod blocksys

# The blocks are long, because on a busy host an emulated CPU is late by hundreds of milliseconds without them. The CPUs are
# isolated, so taskset has to permit them.
insmod "$module" longest_us=1000000
taskset -c 0-3 ./rampart blocktest --cpus 1 --watch 1,2 --length 800ms --count 10 --pause 900ms --seed 3 \
    --kind module --json --show-progress none >result.json 2>result.txt
result=$?
[ $result = 0 ] && passed=passed || passed=failed
report a_test_of_blocks_ends "$passed" "$result $(cat result.txt)"
tr -d '\n' <result.json | sed 's/^/result /'
echo
report every_awaited_state_is_reached passed all
dmesg | grep -v 'smpboot: \|x86: Booting\|microcode: ' | sed 's/^/log /'
echo "cases end"
