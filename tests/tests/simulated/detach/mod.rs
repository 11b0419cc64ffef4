// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detached threads on Debian's kernels for x86-64 and arm64, with and without PREEMPT_RT: a control loop under load
//! without an interrupt on its CPU, hostile threads, the CPU given back whatever ends its holder, and another kernel by
//! kexec.

mod evaluate;
mod machine;

use std::time::SystemTime;

use rampart_tests::detached_programs::has_compiler;
use rampart_tests::programs::beside_others;

use self::machine::{EPYC, Machine, NO_EL2, NO_VHE, SKYLAKE, VHE};

/// The CPU that is taken.
const CPU: usize = 2;

/// The example under load; then what ends it.
const LOOP: &str = r#"
/control_loop 2 3 && echo 'the example ends'
# The examples in Rust are built for this architecture alone.
if [ -x /rust/system_calls ]; then
    /rust/system_calls 2
    /rust/control_loop 2 3 && echo 'the example in Rust ends'
fi
/control_loop 2 1000 & holder=$!
wait_for /sys/devices/virtual/misc/rampart-detach/running 2
# New processes, memory and page tables, on all CPUs that Linux has.
for worker in 1 2 3; do
    (while :; do dd if=/dev/zero of=/tmp/$worker bs=64k count=50 2>/dev/null; true; done) &
    workers="$workers $!"
done
step detached
sleep 3
step end
kill $workers
rmmod detach 2>/dev/null && echo 'FAILED  unloaded while a CPU is taken'
echo 0 >/sys/devices/system/cpu/cpu3/online && echo 1 >/sys/devices/system/cpu/cpu3/online ||
    echo 'FAILED  another CPU does not go offline and online'
kill -9 $holder
wait_for /sys/devices/system/cpu/online 0-3
wait_for $taken ''
echo 'given back'
step attached
taskset -c 2 sh -c 'for turn in $(seq 20); do true; done; sleep 1'
step end
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

/// A domain of a plan: checked, applied, its program run and supervised, released.
const PLAN: &str = r#"
export RAMPART_STATE_DIR=/tmp/state
running=/sys/devices/virtual/misc/rampart-detach/running
owners=/sys/devices/virtual/misc/rampart-detach/owners
ulimit -l unlimited
mkdir /etc
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
/rampart release && echo 'FAILED  released while a program runs'
/rampart down; echo "down $?"
wait_for $taken ''
/rampart release; echo "release $?"
echo "after the release $(cat $owners)"
as owner 3 0; echo "the owner then $?"
"#;

/// The paper's experiment and the costs.
const EXPERIMENT: &str = r#"
(while :; do dd if=/dev/zero of=/tmp/load bs=64k count=50 2>/dev/null; done) & load=$!
/rust/fixed_work 2 3
kill $load
/rust/costs 2
"#;

const ALL: &str = r#"
/detach-test all 2
"#;

/// Few random programs are always the same.
fn repeat(times: u32, fuzz: u32) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = if fuzz == MANY_PROGRAMS {
        now.map_or(0, |time| time.as_secs())
    } else {
        1000
    };
    format!("/detach-test repeat 2 {times}\n/detach-test fuzz 2 {fuzz} {seed}\n")
}

#[test]
fn a_loop_under_load_has_no_interrupt_and_its_cpu_is_given_back() {
    let _machine = beside_others();
    let script = [LOOP, &repeat(12, 10)].concat();
    let output = check_loop(Machine::boot(&script, true, EPYC));
    for expected in [
        "second kernel with CPUs 0-3",
        "the example in Rust ends",
        "proxied: executed, detached",
        "refused: ENOSYS, detached",
        "reattach: executed, attached",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn a_loop_on_arm64_has_no_interrupt_and_its_cpu_is_given_back() {
    let _machine = beside_others();
    if has_compiler("a detached loop on arm64") {
        let script = [LOOP, &repeat(12, 10)].concat();
        check_loop(Machine::boot_kind(&script, &NO_VHE));
    }
}

fn check_loop(mut machine: Machine) -> String {
    let detached = machine.log_step("detached");
    assert_eq!(
        detached[CPU], 0,
        "{detached:?} bytes: interrupts on CPU {CPU}"
    );
    for other in [0, 1, 3] {
        assert!(
            detached[other] > 0,
            "{detached:?} bytes: nothing on CPU {other}"
        );
    }
    // The same log shows the CPU's interrupts when Linux has it again.
    let attached = machine.log_step("attached");
    assert!(
        attached[CPU] > 0,
        "{attached:?} bytes: nothing on CPU {CPU}"
    );
    let output = machine.end();
    for expected in [
        "attached 0 worst",
        "system calls 1 faults 0 kicks ",
        " flushes 0 interrupts 0",
        "the example ends",
        "given back",
        "ok      taken and given back 12 times",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
    output
}

#[test]
fn the_command_lists_takes_and_gives_back() {
    let _machine = beside_others();
    let output = Machine::boot(COMMAND, true, EPYC).end();
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
}

#[test]
fn a_plan_gives_a_program_cpus_to_detach_to() {
    let _machine = beside_others();
    let output = Machine::boot(PLAN, true, EPYC).end();
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
        "down 0",
        "release 0",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn the_experiment_counts_interrupts_and_costs() {
    let _machine = beside_others();
    let output = Machine::boot(EXPERIMENT, true, EPYC).end();
    let interrupts = |name: &str| -> u64 {
        let line = output.lines().find(|line| line.starts_with(name));
        let words = line.and_then(|line| line.trim().strip_suffix(" interrupts"));
        let number = words.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no {name:?}:\n{output}"))
    };
    assert!(interrupts("attached: ") > 10, "{output}");
    assert_eq!(interrupts("detached: "), 0, "{output}");
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

/// The largest count of instructions of both CPUs together. Counts change with the kernel, hence the margin.
const MOST_INSTRUCTIONS: [(&str, u64); 4] = [
    ("system call", 60_000),
    ("page fault", 60_000),
    ("detaching", 60_000),
    ("returning", 60_000),
];

#[test]
#[ignore = "a machine that counts instructions boots for minutes; make bench-detached and make test-long run it"]
fn detaching_costs_a_bounded_number_of_instructions() {
    let _machine = beside_others();
    let output = Machine::boot_counted("/rust/costs 2\n").end();
    let number = |word: &str| word.trim_start_matches('(').parse::<f64>().ok();
    let line_of = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}:\n{output}"))
    };
    let hertz = line_of("counter: ").split(' ').next().and_then(number);
    let instructions = |nanoseconds: f64| (nanoseconds * hertz.expect("a frequency") / 1e9).round();
    let mut table = "| | attached | detached | ratio |\n|---|--:|--:|--:|\n".to_owned();
    for (name, most) in MOST_INSTRUCTIONS {
        let words: Vec<f64> = line_of(&format!("{name}: "))
            .split(' ')
            .filter_map(number)
            .collect();
        let [detached, ratio, attached] = words[..] else {
            panic!("{name}: {words:?}");
        };
        let [detached, attached] = [detached, attached].map(instructions);
        let attached = match name {
            "detaching" | "returning" => "–".to_owned(),
            _ => attached.to_string(),
        };
        table.push_str(&format!("| {name} | {attached} | {detached} | {ratio} |\n"));
        assert!(detached > 0.0 && detached < most as f64, "{table}");
    }
    print_table(&table);
}

#[expect(clippy::print_stdout, reason = "a result for people")]
fn print_table(table: &str) {
    println!("{table}");
}

#[test]
fn hostile_threads_harm_neither_kernel_nor_cpu() {
    let _machine = beside_others();
    for (real_time, cpu) in [(true, EPYC), (false, SKYLAKE)] {
        let output = Machine::boot(ALL, real_time, cpu).end();
        assert!(output.contains("\n0 failed"), "{output}");
        assert_eq!(output.contains("far_kernel"), cpu == SKYLAKE, "{output}");
    }
}

#[test]
fn hostile_threads_on_arm64_harm_neither_kernel_nor_cpu() {
    let _machine = beside_others();
    for kind in [NO_EL2, VHE] {
        if has_compiler("hostile threads on arm64") {
            let output = Machine::boot_kind(ALL, &kind).end();
            assert!(output.contains("\n0 failed"), "{output}");
        }
    }
}

/// Random programs of `make test-long`: hours. Others each time; a failure names its seed.
const MANY_PROGRAMS: u32 = 20_000;

#[test]
#[ignore = "it takes hours; make test-long runs it"]
fn a_cpu_is_taken_and_given_back_a_thousand_times() {
    let _machine = beside_others();
    for (real_time, cpu) in [(true, EPYC), (false, SKYLAKE)] {
        check_thousand(Machine::boot(&repeat(1000, MANY_PROGRAMS), real_time, cpu));
    }
}

#[test]
#[ignore = "it takes hours; make test-long runs it"]
fn a_cpu_of_arm64_is_taken_and_given_back_a_thousand_times() {
    let _machine = beside_others();
    for kind in [NO_VHE, NO_EL2, VHE] {
        if has_compiler("a thousand detached threads on arm64") {
            check_thousand(Machine::boot_kind(&repeat(1000, MANY_PROGRAMS), &kind));
        }
    }
}

fn check_thousand(machine: Machine) {
    let output = machine.end();
    for expected in [
        "taken and given back 1000 times".to_owned(),
        format!("{MANY_PROGRAMS} random programs"),
    ] {
        assert!(output.contains(&expected), "no {expected:?}:\n{output}");
    }
}
