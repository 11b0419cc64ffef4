// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart-meter` on a kernel of 2018: a seccomp filter fails every system call that is newer than Linux 4.19
//! with ENOSYS, as 4.19 does.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rampart_model::{
    CpuSet, METER_PROTOCOL_VERSION, MeterEvent, MeterKind, MeterRequest, MeterSettings, Nanos,
    SchedulingPolicy,
};
use rampart_tests::limited::ended;
use rampart_tests::programs::{directory, usable_cpus};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// `rseq` (334) came with 4.18 and is the last before 4.19; the next number, 424, came with 5.1
/// (`arch/x86/entry/syscalls/syscall_64.tbl`).
const FIRST_AFTER_4_19: i64 = 335;
/// Higher than any system call number of today's kernels.
const LAST: i64 = 600;

#[test]
fn the_meter_runs_under_a_kernel_of_4_19() {
    let newer: BTreeMap<i64, Vec<seccompiler::SeccompRule>> = (FIRST_AFTER_4_19..LAST)
        .map(|number| (number, Vec::new()))
        .collect();
    let filter = SeccompFilter::new(
        newer,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        seccompiler::TargetArch::x86_64,
    )
    .expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    let all = MeterKind::ALL.into_iter();
    for meter in all.filter(|meter| !meter.needs_bare_metal()) {
        let cpu = usable_cpus().first().expect("a CPU");
        let plan = MeterSettings {
            policy: SchedulingPolicy::Other,
            duration: Nanos::from_millis(300),
            warm_up: Nanos::from_millis(50),
            lock_memory: false,
            ..MeterSettings::new(meter, CpuSet::single(cpu))
        };
        let mut command = Command::new(directory().join("rampart-meter"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = program.clone();
        // SAFETY: the closure makes two system calls and touches only memory of its own.
        unsafe {
            command.pre_exec(move || {
                seccompiler::apply_filter(&program)
                    .map_err(|_| std::io::ErrorKind::Unsupported.into())
            });
        }
        let mut child = command.spawn().expect("rampart-meter starts");
        let mut stdin = child.stdin.take().expect("stdin");
        for request in [
            MeterRequest::Prepare {
                protocol: METER_PROTOCOL_VERSION,
                settings: plan,
            },
            MeterRequest::Go {},
        ] {
            let line = serde_json::to_string(&request).expect("json");
            writeln!(stdin, "{line}").expect("a meter that reads");
        }
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let threads = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(
                |line| match serde_json::from_str(&line).expect("an event") {
                    MeterEvent::Finished { threads, .. } => Some(threads),
                    _ => None,
                },
            )
            .unwrap_or_else(|| panic!("{meter}: it ended without a result"));
        // The meter accepts further requests until its input ends.
        drop(stdin);
        assert_eq!(threads.len(), 1, "{meter}");
        assert!(
            threads[0].duration >= Nanos::from_millis(250),
            "{meter}: {}",
            threads[0].duration
        );
        assert!(ended(&mut child).success(), "{meter}");
    }
}
