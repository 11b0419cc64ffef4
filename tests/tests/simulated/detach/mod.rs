// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detached threads on Debian's kernels for x86-64 and arm64, with and without PREEMPT_RT: a control loop under load
//! without an interrupt on its CPU, hostile threads, the CPU given back whatever ends its holder, and another kernel by
//! kexec.

mod costs;
mod evaluate;
mod machine;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rampart_tests::detached_programs::{compile, has_compiler};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{beside_others, stdout};

use self::machine::{
    EPYC, EPYC_TO_FUZZ, EPYC_WITH_GUESTS, FIVE_LEVELS, Kind, Machine, NO_EL2, NO_VHE, SKYLAKE,
    SKYLAKE_TO_FUZZ, VHE,
};

/// The CPU that is taken.
const CPU: usize = 2;

/// The example under load; then what ends it.
const LOOP: &str = r#"
# The interrupt to Linux begins on a CPU that goes offline.
rmmod detach
echo 2 >/proc/irq/default_smp_affinity
insmod /detach.ko
echo f >/proc/irq/default_smp_affinity
/control_loop 2 3 & holder=$!
wait_for /sys/devices/virtual/misc/rampart-detach/running 2
answers() { grep rampart-detach /proc/interrupts | sed 's/^[^:]*://; s/[^0-9 ].*//; s/  */+/g; s/^+//; s/+$//'; }
# The interrupt moves. The call that ends the loop is answered there.
for state in 0 1; do
    for cpu in 1 3; do
        echo $state >/sys/devices/system/cpu/cpu$cpu/online || echo "FAILED  CPU $cpu does not go offline and online"
    done
done
before=$(($(answers)))
wait $holder && echo 'the example ends'
[ $(($(answers))) -gt $before ] || echo 'FAILED  no interrupt to Linux'
/rust/system_calls 2
/rust/control_loop 2 3 && echo 'the example in Rust ends'
/control_loop 2 1000 & holder=$!
wait_for /sys/devices/virtual/misc/rampart-detach/running 2
for load in idle build io; do
    /beside_loads $load sh -c 'echo "step detached"; read answer; sleep 3; echo "step end"; read answer'
done
step machine-check
sleep 1
wait_for /sys/devices/virtual/misc/rampart-detach/running 2
cat /proc/$holder/fdinfo/* | grep faults
rmmod detach 2>/dev/null && echo 'FAILED  unloaded while a CPU is taken'
linked eu-stack -p $holder | sed 's/^/stack /'
wait_for /sys/devices/virtual/misc/rampart-detach/running 2
kill -9 $holder
wait_for /sys/devices/system/cpu/online 0-3
wait_for $taken ''
echo 'given back'
step attached
taskset -c 2 sh -c 'for turn in $(seq 20); do true; done; sleep 1'
step end
"#;

/// A suspension that resumes by itself, as far as the machine can: with all CPUs but one offline (S3), or with its
/// devices. The test programs then take CPUs as ever.
const SUSPEND: &str = r#"
if grep -q deep /sys/power/mem_sleep; then
    echo processors >/sys/power/pm_test; echo mem >/sys/power/state
else
    echo devices >/sys/power/pm_test; echo freeze >/sys/power/state
fi && echo 'suspended and resumed'
echo none >/sys/power/pm_test
"#;

/// The command: lists, takes, gives, releases; and a program without privileges.
const COMMAND: &str = r#"
export RAMPART_STATE_DIR=/tmp/state
ulimit -l unlimited
mkdir /etc
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
echo 'nogroup:x:65534:' >/etc/group
running=/sys/devices/virtual/misc/rampart-detach/running
/rampart detach
/rampart detach take 2 -- /control_loop 2 1000 & holder=$!
wait_for $running 2
# Without a terminal no line is broken.
/rampart detach | cat
echo "json $(/rampart detach --json | tr -d ' \n')"
/rampart detach take 2 -- /bin/true
/rampart detach give 2
wait_for $taken ''
kill -0 $holder && echo 'the loop continues under Linux'
kill -9 $holder
/rampart detach take 2 -- /control_loop 2 1000 & holder=$!
wait_for $running 2
/rampart release
wait_for $taken ''
kill -0 $holder && echo 'the loop continues after the release'
kill -9 $holder
/rampart detach take 2 -- start-stop-daemon -S -c nobody:nogroup -x /control_loop -- -1 2 &&
    echo 'detached without privileges'
wait_for $taken ''
/rampart release
ls /tmp/state/detached/journal | sed 's/^/journal /'
"#;

/// After the command: a domain of a plan: checked, applied, its program run and supervised, released.
const PLAN: &str = r#"
owners=/sys/devices/virtual/misc/rampart-detach/owners
echo 'owner:x:1000:1000::/:/bin/sh' >/etc/passwd
echo 'other:x:1001:1000::/:/bin/sh' >>/etc/passwd
echo 'users:x:1000:' >/etc/group
as() { start-stop-daemon -S -c $1:users -x /control_loop -- $2 $3 2>&1; }
mount -t cgroup2 none /sys/fs/cgroup
cat >/plan.toml <<END
[machine]
housekeeping = "0-1"
[[domain]]
name = "loop"
kind = "detached"
cpus = "2-3"
owner = 1000
run = ["/control_loop", "3", "1000"]
END
as owner 3 0; echo "before the plan $?"
/rampart plan check /plan.toml; echo "plan check $?"
/rampart apply /plan.toml >/tmp/applied 2>&1; echo "apply $?"
cat /tmp/applied
echo "owners $(cat $owners)"
# Twice within the second in which an owner takes a CPU once.
as owner 3 0 && as owner 3 0 && echo 'the owner detaches without root'
wait_for $taken ''
as owner 1 0; echo "another CPU $?"
as other 3 0; echo "another user $?"
echo '3:1001' >/tmp/owners
start-stop-daemon -S -c owner:users -x /bin/dd -- if=/tmp/owners of=$owners 2>/dev/null && echo 'FAILED  an owner writes owners'
for wrong in 3 3:x 3:-1 99:1000 3:4294967295; do
    echo $wrong 2>/dev/null >$owners && echo "FAILED  $wrong is accepted"
done
/rampart run --list
/rampart run loop -- /control_loop 3 2 && echo 'a program of the domain detaches'
wait_for $taken ''
/rampart run loop --cpus 2 -- /control_loop -1 1 && echo 'and with one CPU'
wait_for $taken ''
/rampart move --to loop 1
/rampart up loop; echo "up $?"
wait_for $running 3
/rampart detach | cat
/rampart status; echo "status $?"
kill -9 $(pidof rampart)
sleep 1
[ "$(cat $running)" = 3 ] && echo 'the loop survives its supervisor'
kill -9 $(pidof control_loop)
wait_for $taken ''
echo 'both are killed'
/rampart up loop; echo "up again $?"
wait_for $running 3
/rampart release && echo 'FAILED  released while a program runs'
/rampart down; echo "down $?"
wait_for $taken ''
/rampart release; echo "release $?"
echo "after the release $(cat $owners)"
as owner 3 0; echo "the owner then $?"
"#;

/// The paper's experiment and the costs.
const EXPERIMENT: &str = r#"
grep -c la57 /proc/cpuinfo
for load in idle build io; do
    echo "load $load"
    /beside_loads $load /rust/fixed_work 2 1
done
/rust/costs 2
"#;

/// Linux prints a stack of calls when it ends a process because there is no memory.
const ALL: &str = r#"
if [ -e /kvm-amd.ko ] && grep -q svm /proc/cpuinfo; then
    for module in irqbypass kvm ccp kvm-amd; do insmod /$module.ko; done
fi
/detach-test all 2
[ -e /msr.ko ] && insmod /msr.ko && /detach-test restored 2
dmesg -c | sed 's/^/log /'
/detach-test ends 2 && echo 'every end gives the CPU back'
dmesg -c | sed '/invoked oom-killer/,/Killed process/d' | sed 's/^/log /'
"#;

/// Takes and gives a CPU back so often, and runs random programs on it, always the same.
fn repeat(times: u32, fuzz: u32) -> String {
    format!("/detach-test repeat 2 {times}\n/detach-test fuzz 2 {fuzz} 1000\n")
}

/// The same a thousand times; then random programs on three CPUs at once, others each time.
fn repeat_long() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(0, |time| time.as_secs());
    format!(
        "/detach-test repeat 2 1000\n\
         for cpu in 1 2 3; do /detach-test fuzz $cpu {MANY_PROGRAMS} $(({seed} + 1000000 * cpu)) & done\n\
         wait\n"
    )
}

#[test]
fn a_loop_under_load_has_no_interrupt_and_its_cpu_is_given_back() {
    let _machine = beside_others();
    let script = [LOOP, SUSPEND, &repeat(12, 10)].concat();
    check_loop(Machine::boot(&script, true, EPYC), true);
}

#[test]
fn a_loop_on_arm64_has_no_interrupt_and_its_cpu_is_given_back() {
    let _machine = beside_others();
    if has_compiler("a detached loop on arm64") {
        let script = [LOOP, SUSPEND, EXPERIMENT, &repeat(12, 10)].concat();
        check_experiment(&check_loop(Machine::boot_kind(&script, &NO_VHE), false));
    }
}

/// Returns the output.
fn check_loop(mut machine: Machine, injects_errors: bool) -> String {
    for load in ["idle", "build", "io"] {
        let detached = machine.log_step("detached");
        assert_eq!(
            detached[CPU], 0,
            "{load}: {detached:?} bytes: interrupts on CPU {CPU}"
        );
        let others: u64 = [0, 1, 3].map(|other| detached[other]).iter().sum();
        assert!(
            others > 0,
            "{load}: {detached:?} bytes: nothing on other CPUs"
        );
    }
    // An error that is not corrected, in bank 1 (Intel SDM 3B, 16.3): a fault of the thread, which continues.
    machine.wait_for("step machine-check");
    if injects_errors {
        machine.monitor("mce 2 1 0xb200000000000000 0x5 0 0");
    }
    machine.go_on();
    // The same log shows the CPU's interrupts when Linux has it again.
    let attached = machine.log_step("attached");
    assert!(
        attached[CPU] > 0,
        "{attached:?} bytes: nothing on CPU {CPU}"
    );
    let output = machine.end();
    let faults = format!("faults:\t{}\n", u8::from(injects_errors));
    for expected in [
        &faults,
        "attached 0 worst",
        "system calls 1 faults 0 kicks ",
        " flushes 0 interrupts 0",
        "the example ends",
        "proxied: executed, detached",
        "refused: ENOSYS, detached",
        "reattach: executed, attached",
        "the example in Rust ends",
        "given back",
        "suspended and resumed",
        "second kernel with CPUs 0-3",
        "ok      taken and given back 12 times",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
    // The debugger sees what the detached thread does, below what Linux has of it.
    let stack = |function: &str| {
        let is_frame = |line: &&str| line.starts_with("stack #") && line.ends_with(function);
        output.lines().position(|line| is_frame(&line))
    };
    // It names functions in assembly by `$x` on arm64.
    let library = stack(" rampart_detached_switch").or_else(|| stack(" serve"));
    let thread = stack(" control_thread");
    assert!(library.is_some() && library < thread, "no stack:\n{output}");
    output
}

#[test]
fn the_command_and_a_plan_give_a_program_cpus_to_detach_to() {
    let _machine = beside_others();
    let output = Machine::boot(&[COMMAND, PLAN].concat(), true, EPYC).end();
    for expected in [
        "No CPU is taken.",
        "running  control_loop (",
        "json [{\"cpu\":2,\"state\":\"running\",\"holders\":[{\"process\":",
        ",\"interrupts\":0}}]",
        "CPU 2: cannot be taken: ",
        "CPU 2 is given back to Linux",
        "the loop continues under Linux",
        "/sys/devices/system/cpu/cpu2: given back by process",
        "the loop continues after the release",
        "detached without privileges",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
    assert!(
        !output.contains("\njournal "),
        "a journal is left:\n{output}"
    );
    for expected in [
        "plan check 0",
        "apply 0",
        "detached (taken from Linux)",
        "before the plan 1",
        "owners 2:1000 3:1000",
        "the owner detaches without root",
        "error: cannot take CPU 1: Operation not permitted\nanother CPU 1",
        "error: cannot take CPU 3: Permission denied\nanother user 1",
        "after the release none",
        "the owner then 1",
        "a program of the domain detaches",
        "and with one CPU",
        "rampart run loop -- PROGRAM",
        "up 0",
        "running  control_loop (",
        "status 0",
        "the loop survives its supervisor",
        "both are killed",
        "up again 0",
        "down 0",
        "release 0",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn the_experiment_counts_interrupts_and_costs() {
    let _machine = beside_others();
    let output = Machine::boot(EXPERIMENT, true, FIVE_LEVELS).end();
    assert!(
        output.contains("\n4\n"),
        "no five-level page tables:\n{output}"
    );
    check_experiment(&output);
}

fn check_experiment(output: &str) {
    let interrupts = |text: &str, name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name));
        let words = line.and_then(|line| line.trim().strip_suffix(" interrupts"));
        let number = words.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no {name:?}:\n{output}"))
    };
    for load in ["idle", "build", "io"] {
        let text = output.split_once(&format!("load {load}\n"));
        let (_, text) = text.unwrap_or_else(|| panic!("no {load}:\n{output}"));
        for (attached, detached) in [
            ("attached: ", "detached: "),
            ("attached loop: ", "detached loop: "),
        ] {
            assert!(interrupts(text, attached) > 10, "{load}: {output}");
            assert_eq!(interrupts(text, detached), 0, "{load}: {output}");
        }
    }
    // 200 calls, and one that attaches the thread after each of both measurements.
    assert!(output.contains("counted: 202 system calls, 20"), "{output}");
    for expected in [
        "times an attached system call",
        "times an attached page fault",
        "\ndetaching: ",
        "\nreturning: ",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

/// Runs what the README names.
fn check_example(architecture: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("scripts/example-detached"))
        .args([architecture, "5"])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(900), Vec::new())
        .expect("scripts/example-detached starts");
    let text = stdout(&output, 0);
    for expected in [
        "the control loop runs on CPU 2, a build and an IO load on CPUs 0-1,3-4",
        "interrupts on CPU 2: 0",
        "after kill -9 Linux runs a program on CPU 2",
    ] {
        assert!(text.contains(expected), "no {expected:?}:\n{text}");
    }
}

#[test]
fn the_example_has_no_interrupt_and_gives_its_cpu_back_when_killed() {
    let _machine = beside_others();
    check_example("x86_64");
}

#[test]
fn the_example_on_arm64_has_no_interrupt_and_gives_its_cpu_back_when_killed() {
    let _machine = beside_others();
    if has_compiler("the example of a detached thread on arm64") {
        check_example("aarch64");
    }
}

/// Returns whether a program has the instruction `tpause %ecx` (Intel SDM 2B: 66 0F AE /6).
fn has_tpause(program: &Path) -> bool {
    let code = std::fs::read(program).expect("a program");
    code.windows(4)
        .any(|bytes| bytes == [0x66, 0x0f, 0xae, 0xf1])
}

#[test]
fn the_library_has_the_instruction_that_pauses_until_a_time() {
    if std::env::consts::ARCH != "x86_64" {
        return;
    }
    let location = tempfile::tempdir().expect("a directory");
    compile("x86_64", location.path());
    assert!(has_tpause(&location.path().join("control_loop")));
}

#[test]
fn hostile_threads_harm_neither_kernel_nor_cpu() {
    let _machine = beside_others();
    for (real_time, cpu) in [(true, EPYC_WITH_GUESTS), (false, SKYLAKE)] {
        let output = Machine::boot(ALL, real_time, cpu).end();
        check_ends(&output);
        assert_eq!(output.contains("far_kernel"), cpu == SKYLAKE, "{output}");
        // Kernels of `make test-newest` come without their modules.
        let has_registers = std::env::var_os("RAMPART_TEST_MODULES").is_none();
        let compared = output.contains("ok      Linux has access again");
        assert_eq!(compared, has_registers, "{output}");
        let has_guests = has_registers && cpu == EPYC_WITH_GUESTS;
        assert_eq!(has_guest(&output), has_guests, "{output}");
    }
}

#[test]
fn hostile_threads_on_arm64_harm_neither_kernel_nor_cpu() {
    check_hostile_on_arm64(&VHE);
}

#[test]
#[ignore = "takes a minute more; make test-long runs it"]
fn hostile_threads_on_arm64_without_el2_harm_neither_kernel_nor_cpu() {
    check_hostile_on_arm64(&NO_EL2);
}

fn check_hostile_on_arm64(kind: &Kind) {
    let _machine = beside_others();
    if has_compiler("hostile threads on arm64") {
        let output = Machine::boot_kind(ALL, kind).end();
        check_ends(&output);
        // KVM needs EL2, which only one of them has.
        assert_eq!(has_guest(&output), kind.cpu == VHE.cpu, "{output}");
    }
}

/// Returns whether a guest of KVM ran in the process of a detached thread.
fn has_guest(output: &str) -> bool {
    output.contains("ok      a guest of KVM in the process")
}

fn check_ends(output: &str) {
    for expected in ["\n0 failed", "every end gives the CPU back"] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

/// Random programs of each of three CPUs in `make test-long`: 20,000, which take hours. A failure names its seed.
const MANY_PROGRAMS: u32 = 6_667;

#[test]
#[ignore = "it takes hours; make test-long runs it"]
fn a_cpu_is_taken_and_given_back_a_thousand_times() {
    let _machine = beside_others();
    for (real_time, cpu) in [(true, EPYC_TO_FUZZ), (false, SKYLAKE_TO_FUZZ)] {
        check_thousand(Machine::boot(&repeat_long(), real_time, cpu));
    }
}

#[test]
#[ignore = "it takes hours; make test-long runs it"]
fn a_cpu_of_arm64_is_taken_and_given_back_a_thousand_times() {
    let _machine = beside_others();
    for kind in [NO_VHE, NO_EL2, VHE] {
        if has_compiler("a thousand detached threads on arm64") {
            check_thousand(Machine::boot_kind(&repeat_long(), &kind));
        }
    }
}

fn check_thousand(machine: Machine) {
    let output = machine.end();
    let taken = "taken and given back 1000 times";
    assert!(output.contains(taken), "no {taken:?}:\n{output}");
    let programs = format!("ok      {MANY_PROGRAMS} random programs");
    assert_eq!(output.matches(&programs).count(), 3, "{output}");
}
