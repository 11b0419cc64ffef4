// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The newest PREEMPT_RT kernel for the distribution, from its backports, as the root and in a cell.

use std::time::Duration;

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_with_newest_kernel,
};

const RUN: &str = r#"
echo "release $(uname -r)"
./cells_agent cells . root alarm attacks || echo 'FAILED  cells'
./cells_agent turns 3 . || echo 'FAILED  turns'
./cells_agent leave 10 || echo 'FAILED  leave'
echo 9010000.pl031 >/sys/bus/amba/drivers/rtc-pl031/unbind || echo 'FAILED  the clock is still bound'
./cells_agent enable || echo 'FAILED  enable'
./linux_agent device /boot/vmlinuz-$(uname -r) rampart-meter || echo 'FAILED  linux_agent'
./cells_agent disable || echo 'FAILED  disable'
"#;

const REFUSED: &str = r#"
./cells_agent enable && echo 'FAILED  enabled'
"#;

#[test]
#[ignore = "boots twice for two minutes; make test-long runs it"]
fn the_newest_kernel_is_the_root_and_runs_in_a_cell() {
    let script = [BEGIN, RUN, END].concat();
    let text = run_with_newest_kernel(&script, Duration::from_secs(1800), "");
    assert_nothing_failed(&text);
    for wanted in [
        "alarm: the other cell is not disturbed",
        "attacks: the other cell is not disturbed",
        "disabled 10 times under load",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let release = text.lines().find_map(|line| line.strip_prefix("release "));
    let version = release.and_then(|release| release.strip_prefix("6."));
    let minor = version.and_then(|version| version.split('.').next());
    let minor = minor.and_then(|minor| minor.parse::<u32>().ok());
    assert!(minor.is_some_and(|minor| minor >= 12), "{release:?}");
    let errors = kernel_errors(&text, &["log ", "cell "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");

    // KVM takes EL2 when the kernel starts, without this machine's kvm.enable_virt_at_load=0.
    let script = [BEGIN, REFUSED, END].concat();
    let arguments = "kvm.enable_virt_at_load=1";
    let text = run_with_newest_kernel(&script, Duration::from_secs(1800), arguments);
    assert_nothing_failed(&text);
    assert!(
        text.contains("also boot with kvm.enable_virt_at_load=0"),
        "{text}"
    );
}
