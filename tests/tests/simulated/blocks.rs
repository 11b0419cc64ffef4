// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module `blocksys` on a real PREEMPT_RT kernel, in the simulated machine: what it must
//! do and what it must refuse, CPUs that go and come while they are stopped, a hundred loads and
//! unloads, and what the meters see of it. The kernel's log has to stay clean through all of it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{alone, directory, exit_code, stdout};
use serde_json::Value;

/// Everything in one machine: booting it takes longer than the tests.
const SCRIPT: &str = r#"
set -u
mkdir /tmp/blocks && tar -x -C /tmp/blocks && cd /tmp/blocks
module=modules/$(uname -r)/blocksys.ko
[ -e $module ] || { echo "no $module"; exit 9; }
grep -q '^blocksys ' /proc/modules && rmmod blocksys

for wrong in longest_us=0 longest_us=1000001 share_percent=0 share_percent=91; do
    insmod $module $wrong 2>/dev/null && { echo "FAILED  loaded with $wrong"; rmmod blocksys; }
done
dmesg -C
insmod $module
./blocksys-test all 1 2 || echo "FAILED  blocksys-test"

./blocksys-test hold 1 & holder=$!
sleep 1
rmmod blocksys 2>/dev/null && echo "FAILED  unloaded while in use"
kill -9 $holder; wait $holder 2>/dev/null
rmmod blocksys || echo "FAILED  not unloaded after its owner was killed"
for turn in $(seq 100); do
    insmod $module && rmmod blocksys || echo "FAILED  turn $turn"
done
insmod $module longest_us=50000 share_percent=25
echo "loaded a hundred times"

# By nobody's account but cyclictest's: nothing ranks above it, and it is stopped all the same.
timeout 60 ./rampart block --cpus 1 --length 40ms --count 60 --pause 160ms --kind module &
cyclictest -q -m -t 1 -a 1 -p 99 -i 1000 -D 8 | sed -n 's/.*Max: */cyclictest-max /p'
wait $!
echo "blocked $?"

# The CPUs are isolated, so that a shell is not let onto them by itself.
taskset -c 0-3 ./rampart blocktest --cpus 1 --watch 1,2 --length 40ms --count 40 --pause 160ms --seed 3 \
    --kind module --json --show-progress none >result.json 2>result.txt
echo "blocktest $?"
sed 's/^/told /' result.txt
./rampart block --cpus 1 --length 51ms --pause 1s 2>&1 | sed 's/^/limit /'
./rampart block --cpus 1 --length 40ms --pause 100ms 2>&1 | sed 's/^/share /'
tr -d '\n' <result.json | sed 's/^/result /'
echo
dmesg | grep -v 'smpboot: \|x86: Booting\|microcode: ' | sed 's/^/log /'
"#;

/// What the kernel says when something is wrong with it.
const KERNEL_ERRORS: [&str; 9] = [
    "WARNING",
    "BUG",
    "Call Trace",
    "stall",
    "lockup",
    "scheduling while atomic",
    "blocked for more than",
    "Oops",
    "general protection",
];

fn checked(mut command: Command, what: &str) {
    let output = command
        .finish()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(exit_code(&output), 0, "{what}: {output:?}");
}

/// Programs and modules as one directory.
fn carried(to: &Path) {
    let bin = directory();
    let modules = bin.join("modules");
    assert!(
        modules.is_dir(),
        "{}: no modules to test; run `make modules`",
        modules.display()
    );
    let mut copy = Command::new("cp");
    copy.arg("-R")
        .arg(bin.join("rampart"))
        .arg(bin.join("rampart-meter"));
    copy.arg(&modules).arg(to);
    checked(copy, "cp");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/blocksys/tests/blocksys-test.c");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-O2", "-static", "-o"]);
    compile.arg(to.join("blocksys-test")).arg(source);
    checked(compile, "cc");
}

#[test]
fn the_module_makes_blocks_as_requested() {
    let _alone = alone();
    let directory_here = tempfile::tempdir().expect("a directory");
    carried(directory_here.path());
    let archive = Command::new("tar")
        .args(["-c", "-C"])
        .arg(directory_here.path())
        .arg(".")
        .finish()
        .expect("tar");
    assert!(archive.status.success(), "{archive:?}");
    let output = Command::new(directory().join("rampart"))
        .args([
            "sim", "run", "--own", "--cpus", "4", "--", "bash", "-c", SCRIPT,
        ])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(600), archive.stdout)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    let all = || format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));

    assert!(!text.contains("FAILED"), "{}", all());
    assert!(text.contains("0 failed"), "{}", all());
    assert!(text.contains("loaded a hundred times"), "{}", all());
    assert!(
        text.contains("blocked 0") && text.contains("blocktest 0"),
        "{}",
        all()
    );

    let rest = |head: &str| -> Vec<&str> {
        text.lines()
            .filter_map(|line| line.strip_prefix(head))
            .collect()
    };
    // A wake that falls anywhere into a block of 40 ms; of sixty blocks one is met early on.
    let max: u64 = rest("cyclictest-max ")[0]
        .trim()
        .parse()
        .expect("microseconds");
    assert!(max >= 36_000, "cyclictest saw {max} µs: {}", all());
    // The limits that it was loaded with are told.
    assert!(
        rest("limit ").join(" ").contains("50 ms or less"),
        "{}",
        all()
    );
    assert!(
        rest("share ").join(" ").contains("25 % or less"),
        "{}",
        all()
    );

    let result: Value = serde_json::from_str(rest("result ")[0]).expect("a document");
    assert_eq!(result["made"]["kind"], "module");
    let transfer = |cpu: u32| {
        let cpus = result["cpus"].as_array().expect("CPUs").iter();
        let found = cpus.clone().find(|result| result["cpu"] == cpu);
        found.unwrap_or_else(|| panic!("no CPU {cpu} in {result}"))["transfer"].clone()
    };
    let estimate = |cpu: u32| {
        transfer(cpu)["interval"]["estimate"]
            .as_f64()
            .expect("a number")
    };
    assert_eq!(transfer(1)["outcome"], "leaks", "{}", transfer(1));
    assert!((0.7..1.5).contains(&estimate(1)), "{}", transfer(1));
    assert!(estimate(2) < 0.3, "{}", transfer(2));

    for line in rest("log ") {
        for complaint in KERNEL_ERRORS {
            assert!(
                !line.contains(complaint),
                "the kernel's log is not clean: {}",
                all()
            );
        }
    }
}
