// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan on the simulated machine, over a restart: the boot line is written, the machine started
//! again with it, the plan applied and taken back, and every file is as before.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{directory, stdout};

/// `rampart` inside, which comes on standard input, and what a plan may change, as text.
const PRELUDE: &str = r#"
set -e
cat > /tmp/rampart
chmod +x /tmp/rampart
PATH=$PATH:/tmp
cd /var/lib/rampart
changeable() {
    for file in $(find /proc/sys/kernel /proc/sys/vm /proc/irq /sys/devices/virtual/workqueue \
        /sys/devices/system/cpu /sys/kernel/mm /sys/fs/cgroup -type f -perm -u+w | sort); do
        case $file in
            */random/* | */pty/* | */ns_last_pid | */cgroup.procs | */cgroup.threads) ;;
            */compact_memory | */drop_caches | */pagetypeinfo) ;;
            */memory.* | */*.pressure | */perf_event_*) ;;
            *) echo "$file: $(timeout 5 cat "$file" 2>&1 | tr '\n' ' ')" ;;
        esac
    done
    find /sys/fs/cgroup -type d | sort
}
"#;

const FIRST: &str = r#"
cp -a /boot/extlinux/extlinux.conf loader-before
rampart plan propose --real-time-cpus 2 > plan.toml
grep -q '^\[boot\]' plan.toml || printf '\n[boot]\nreboot = "plan"\n' >> plan.toml
! grep -q isolcpus /proc/cmdline
rampart apply --boot plan.toml
grep -q isolcpus /boot/extlinux/extlinux.conf
"#;

const SECOND: &str = r#"
grep -q isolcpus /proc/cmdline
changeable > before
rampart apply plan.toml
changeable > applied
! cmp -s before applied
rampart apply plan.toml --dry-run > steps
rampart release
changeable > after
diff before after
cmp loader-before /boot/extlinux/extlinux.conf
test -z "$(ls journal)"
test ! -e plan.json
echo as before
"#;

fn run(disk: &Path, script: &str) -> String {
    let rampart = directory().join("rampart");
    let mut command = Command::new(&rampart);
    command
        .args([
            "sim",
            "run",
            "--own",
            "--cpus",
            "4",
            "--real-time-cpus",
            "none",
            "--disk",
        ])
        .arg(disk)
        .args(["--", "sh", "-c", &format!("{PRELUDE}{script}")])
        .env_remove("RAMPART_METER");
    let program = std::fs::read(&rampart).expect("the program");
    let output = command.finish_within(Duration::from_secs(300), program);
    stdout(&output.expect("rampart starts"), 0)
}

#[test]
#[ignore = "for `rampart apply --boot`"]
fn a_plan_goes_over_a_restart_and_leaves_everything_as_it_was() {
    let place = tempfile::tempdir().expect("a directory");
    let disk = place.path().join("disk");
    run(&disk, FIRST);
    let text = run(&disk, SECOND);
    assert!(text.ends_with("as before\n"), "{text}");
}
