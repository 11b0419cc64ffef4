// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module `blocksys` on a PREEMPT_RT kernel in the simulated machine: blocks, refusals, CPUs that go
//! offline while they are stopped, a hundred loads and unloads, and the measured blocks. The kernel log must have
//! no error.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rampart_tests::hypervisor::{assert_nothing_failed, kernel_errors};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{archive, beside_others, directory, exit_code, stderr, stdout};
use rampart_tests::verdicts::BlocktestResult;
use serde_json::Value;

/// All tests in one machine, because booting it takes longer than the tests.
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

# cyclictest, at the highest priority, sees the blocks too.
timeout 60 ./rampart block --cpus 1 --length 40ms --count 60 --pause 160ms --kind module &
cyclictest -q -m -t 1 -a 1 -p 99 -i 1000 -D 8 | sed -n 's/.*Max: */cyclictest-max /p'
wait $!
echo "blocked $?"

# The CPUs are isolated, so taskset has to permit them.
taskset -c 0-3 ./rampart blocktest --cpus 1 --watch 1,2 --length 40ms --count 40 --pause 160ms --seed 3 \
    --kind module --json --show-progress none >result.json 2>result.txt
echo "blocktest $?"
sed 's/^/stderr /' result.txt
./rampart block --cpus 1 --length 51ms --pause 1s 2>&1 | sed 's/^/limit /'
./rampart block --cpus 1 --length 40ms --pause 100ms 2>&1 | sed 's/^/share /'
tr -d '\n' <result.json | sed 's/^/result /'
echo
dmesg | grep -v 'smpboot: \|x86: Booting\|microcode: ' | sed 's/^/log /'
"#;

fn assert_succeeds(mut command: Command) {
    let output = command
        .finish()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert_eq!(exit_code(&output), 0, "{command:?}: {output:?}");
}

/// Copies programs and modules to a directory.
fn copy_programs(to: &Path) {
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
    assert_succeeds(copy);
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/blocksys/tests/blocksys-test.c");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-O2", "-static", "-o"]);
    compile.arg(to.join("blocksys-test")).arg(source);
    assert_succeeds(compile);
}

#[test]
fn the_module_makes_blocks_as_requested() {
    let _machine = beside_others();
    let location = tempfile::tempdir().expect("a directory");
    copy_programs(location.path());
    let archive = archive(location.path(), &["."]);
    let output = Command::new(directory().join("rampart"))
        .args([
            "sim", "run", "--own", "--cpus", "4", "--", "bash", "-c", SCRIPT,
        ])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(600), archive)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    let all = || format!("{text}\n{}", stderr(&output));

    assert_nothing_failed(&all());
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
    // One of the sixty blocks of 40 ms begins shortly before a wake-up.
    let max: u64 = rest("cyclictest-max ")[0]
        .trim()
        .parse()
        .expect("microseconds");
    assert!(max >= 36_000, "cyclictest saw {max} µs: {}", all());
    // Refusals name the limits of the module's parameters.
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
    let [stopped, other] = [1, 2].map(|cpu| BlocktestResult::of(&result, cpu));
    assert_eq!(stopped.outcome(), "leaks", "{stopped:?}");
    assert!((0.7..1.5).contains(&stopped.transfer()), "{stopped:?}");
    assert!(other.transfer() < 0.3, "{other:?}");

    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}: {}", all());
}
