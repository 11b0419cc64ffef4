// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detached threads beside the hypervisor, in one boot of the simulated arm64 machine: under it a taken CPU stays the
//! root's, and a CPU is a cell's or is taken, never both.

use std::time::Duration;

use rampart_tests::cell_script::ScriptOutput;
use rampart_tests::detached_programs::has_compiler;
use rampart_tests::hypervisor::{assert_nothing_failed, kernel_errors, run_with_detached_threads};

const SCRIPT: &str = r#"
set -u
mkdir /tmp/cells && tar -x -C /tmp/cells && cd /tmp/cells || exit 9
# The CPUs are isolated; what is done here goes everywhere.
taskset -p -c 0-3 $$ >/dev/null
for module in rampart detach; do
    grep -q "^$module " /proc/modules || insmod modules/$(uname -r)/$module.ko || echo "FAILED  $module"
done
dmesg -C
export RAMPART_STATE_DIR=/tmp/state
sysfs=/sys/devices/virtual/misc/rampart-detach
run() {
    word=$1; shift
    echo "<$word>"
    ./rampart "$@" 2>&1
    echo "</$word> is $?"
}
# Prints the end of a program as `run` does.
program() {
    word=$1; shift
    echo "<$word>"
    "$@" 2>&1
    echo "</$word> is $?"
}
wait_for() {
    for turn in $(seq 300); do
        [ "$(cat $1)" = "$2" ] && return
        sleep 0.1
    done
    echo "FAILED  $1 is $(cat $1), not $2"
}
detach() {
    ./control_loop 3 1000 >/dev/null & holder=$!
    wait_for $sysfs/running 3
}
attach() {
    kill -9 $holder
    wait_for $sysfs/taken ''
    wait_for /sys/devices/system/cpu/online 0-3
}
detach
run enable-while-taken cell enable --image rampart.bin
attach
run enable cell enable --image rampart.bin
program loop ./control_loop 3 3
# It takes the next CPU, too.
program hostile ./detach-test all 2
detach
run create-while-taken cell create press --cpus 3
run disable-while-taken cell disable
[ "$(cat $sysfs/running)" = 3 ] || echo 'FAILED  the loop does not run on'
attach
run create cell create press --cpus 3 --argument 1000 --image rampart-cell-irq
run start cell start press
program taken-by-cell ./control_loop 3 1
program beside-a-cell ./control_loop 2 1
run destroy cell destroy press
program after-the-cell ./control_loop 3 1
run disable cell disable
program without ./control_loop 3 1
echo finished
dmesg | sed 's/^/log /'
"#;

#[test]
fn a_cpu_under_the_hypervisor_is_a_cells_or_is_taken() {
    if !has_compiler("detached threads under the hypervisor") {
        return;
    }
    let text = run_with_detached_threads(SCRIPT, Duration::from_secs(1800));
    let output = ScriptOutput::new(&text);
    output.refused("enable-while-taken", &["rampart detach give 3"]);
    for word in ["enable", "create", "start", "destroy", "disable"] {
        output.assert_success(word);
    }
    for word in ["loop", "beside-a-cell", "after-the-cell", "without"] {
        let printed = output.of(word, 0);
        assert!(
            printed.contains(" faults 0 ") && printed.contains(" interrupts 0"),
            "{word}: {printed}"
        );
    }
    assert!(output.of("hostile", 0).contains("\n0 failed"), "{text}");
    output.refused("create-while-taken", &["CPU 3"]);
    output.refused("disable-while-taken", &[]);
    let refused = output.of("taken-by-cell", 1);
    assert!(
        refused.contains("cannot take CPU 3: No such device"),
        "{refused}"
    );
    assert_nothing_failed(&text);
    assert!(text.contains("\nfinished\n"), "{text}");
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}
