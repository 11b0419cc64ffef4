# SPDX-License-Identifier: Apache-2.0 OR MIT
# The paper's experiment and the costs.
interrupts() {
    sed -n "s/^$1: .* \([0-9]*\) interrupts\$/\1/p" /tmp/work
}
for load in idle build io; do
    /beside_loads $load /rust/fixed_work 2 1 >/tmp/work
    cat /tmp/work
    for work in '' ' loop'; do
        name=work
        [ -z "$work" ] || name=loop
        attached=$(interrupts "attached$work")
        [ "${attached:-0}" -gt 10 ] && result=passed || result=failed
        report an_attached_${name}_is_interrupted $result "$load: $attached interrupts"
        detached=$(interrupts "detached$work")
        [ "$detached" = 0 ] && result=passed || result=failed
        report a_detached_${name}_is_not_interrupted $result "$load: $detached interrupts"
    done
done
/rust/costs 2 >/tmp/costs
cat /tmp/costs
costs=$(cat /tmp/costs)
# 200 calls, and one that attaches the thread after each of both measurements.
has the_calls_of_the_costs_are_counted "$costs" 'counted: 202 system calls, 20'
for part in 'times an attached system call' 'times an attached page fault' 'detaching: ' 'returning: '; do
    has the_costs_are_compared "$costs" "$part"
done
