# SPDX-License-Identifier: Apache-2.0 OR MIT
# The example under load; then what ends it. `injected` is the number of errors that the test injects.

answers() {
    echo $(($(grep rampart-detach /proc/interrupts | sed 's/^[^:]*://; s/[^0-9 ].*//; s/  */+/g; s/^+//; s/+$//')))
}
# The interrupt to Linux begins on a CPU that goes offline, and moves. The call that ends the loop is answered elsewhere. On a
# slow machine the loop has to last longer than this takes.
for seconds in 3 20 100 500; do
    rmmod detach
    echo 2 >/proc/irq/default_smp_affinity
    insmod /detach.ko
    echo f >/proc/irq/default_smp_affinity
    /control_loop 2 $seconds >/tmp/example &
    holder=$!
    wait_for $running 2
    for state in 0 1; do
        for cpu in 1 3; do
            succeeds other_cpus_go_offline_and_online \
                sh -c "echo $state >/sys/devices/system/cpu/cpu$cpu/online"
        done
    done
    before=$(answers)
    is_running=$(cat $running)
    wait $holder
    is the_example_ends $? 0
    [ "$is_running" = 2 ] && break
done
after=$(answers)
[ "$after" -gt "$before" ] && result=passed || result=failed
report the_interrupt_to_linux_moves_to_another_cpu $result "$before, then $after"
example=$(cat /tmp/example)
has no_turn_of_the_example_is_attached "$example" 'attached 0 worst'
has the_example_makes_one_system_call_and_has_no_fault "$example" 'system calls 1 faults 0 kicks '
has the_example_has_no_flush_and_no_interrupt "$example" ' flushes 0 interrupts 0'
calls=$(/rust/system_calls 2)
has a_proxied_call_is_executed_detached "$calls" 'proxied: executed, detached'
has a_refused_call_is_enosys_and_stays_detached "$calls" 'refused: ENOSYS, detached'
has a_call_by_reattaching_is_executed_attached "$calls" 'reattach: executed, attached'
succeeds the_example_in_rust_ends /rust/control_loop 2 1

/control_loop 2 1000 &
holder=$!
wait_for $running 2
# The test reads how much QEMU logged for each CPU.
for load in idle build io; do
    /beside_loads $load sh -c 'echo "step detached"; read -r _; sleep 2; echo "step end"; read -r _'
done
step machine-check
faults() {
    cat /proc/$holder/fdinfo/* | sed -n 's/^faults:[[:space:]]*//p'
}
sleep 1
for _ in $(seq 600); do
    [ "$(faults)" = 0 ] || break
    [ "$injected" = 0 ] && break
    sleep 0.1
done
wait_for $running 2
is faults_are_the_injected_errors "$(faults)" $injected
refused the_driver_is_not_unloaded_while_a_cpu_is_taken rmmod detach
# The debugger sees what the detached thread does, below what Linux has of it. It names functions in assembly by `$x` on arm64.
linked eu-stack -p $holder >/tmp/stack
sed 's/^/stack /' /tmp/stack
line_of() {
    grep -n "^#.* $1\$" /tmp/stack | head -n 1 | cut -d: -f1
}
library=$(line_of rampart_detached_switch)
: "${library:=$(line_of serve)}"
thread=$(line_of control_thread)
[ "${library:-999}" -lt "${thread:-0}" ] && result=passed || result=failed
report a_debugger_sees_the_stack_of_the_detached_thread $result "lines $library and $thread"
wait_for $running 2
kill -9 $holder
wait_for /sys/devices/system/cpu/online 0-3
wait_for $taken ''
is a_killed_loop_gives_its_cpu_back "$(cat /sys/devices/system/cpu/online)" 0-3
step attached
taskset -c 2 sh -c 'for turn in $(seq 20); do true; done; sleep 1'
step end
