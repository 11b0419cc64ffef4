// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches a booting guest: whether it ends, is stopped by an error of KVM, or makes no progress.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rampart_model::{Accelerator, Finding};
use rampart_qemu::Qemu;
use serde_json::json;

use super::host_support::KVM;

/// On every 64-bit Linux the addresses from here on, the upper half, belong to the kernel.
const UPPER_HALF: u64 = 0x8000_0000_0000_0000;
/// Time limit for a kernel to unpack itself and continue in the upper half. It takes a second or
/// two, and twenty on an emulated machine.
const UNPACK_LIMIT: Duration = Duration::from_secs(60);
/// CPU time that a virtual CPU spends in the host's kernel, and hardly any in the guest, if the
/// host's kernel emulates its instructions one by one.
const IN_KERNEL: Duration = Duration::from_secs(3);
/// Ratio of time in the kernel to time in the guest that is too high. Working KVM is far below 1.
const IN_KERNEL_RATIO: u32 = 10;
/// Time limit for the agent's first message. It takes two seconds on a physical machine.
const HELLO_LIMIT: Duration = Duration::from_secs(60);
/// Factor by which emulated machines are slower, with a wide margin.
const EMULATED_FACTOR: u32 = 8;
/// Number of console lines in a message.
const CONSOLE_LINES: usize = 12;

/// Time limits of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// For its kernel to unpack itself; `None` if that cannot be observed.
    pub(super) unpack: Option<Duration>,
    /// For the agent's first message.
    pub(super) hello: Duration,
}

impl Limits {
    /// Returns the limits; `emulated` is whether this machine is emulated.
    pub(super) fn of(accelerator: Accelerator, emulated: bool) -> Self {
        let factor = if emulated { EMULATED_FACTOR } else { 1 };
        match accelerator {
            Accelerator::Kvm => Self {
                unpack: Some(UNPACK_LIMIT * factor),
                hello: HELLO_LIMIT * factor,
            },
            Accelerator::Tcg => Self {
                unpack: None,
                hello: HELLO_LIMIT * EMULATED_FACTOR * factor,
            },
        }
    }
}

/// Result of a check of a booting guest.
#[derive(Debug)]
pub(super) enum Look {
    /// No change.
    Booting,
    /// Its kernel runs.
    KernelRuns,
    /// It will not boot.
    Failed(Failure),
}

/// The reason why a guest does not boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// A clause without a full stop.
    pub(super) what: String,
    /// Whether the accelerator is at fault, not this guest.
    pub(super) accelerator: bool,
    /// QEMU's standard error.
    pub(super) stderr: String,
    /// The last lines of its console.
    pub(super) console: Vec<String>,
}

/// Watches the boot of one guest.
#[derive(Debug)]
pub(super) struct Watch {
    begin: Instant,
    limits: Limits,
    kernel_runs: bool,
    /// `/proc/PID/task/TID/stat` of the first virtual CPU.
    first_cpu: PathBuf,
}

impl Watch {
    /// Starts watching when the guest is started; `first_cpu` is the thread of its first virtual
    /// CPU.
    pub(super) fn new(limits: Limits, process: u32, first_cpu: u32) -> Self {
        Self {
            begin: Instant::now(),
            limits,
            kernel_runs: limits.unpack.is_none(),
            first_cpu: PathBuf::from(format!("/proc/{process}/task/{first_cpu}/stat")),
        }
    }

    /// Checks the guest. This only reads its registers, until its kernel runs.
    pub(super) fn look(&mut self, qemu: &Qemu) -> Look {
        if let Some(status) = qemu.ended() {
            return failed(
                qemu,
                format!("the guest ended while it booted ({status})"),
                false,
            );
        }
        while let Some(event) = qemu.qmp().next_event(Duration::ZERO) {
            let what = match event.name.as_str() {
                // STOP has its reason in the state: `internal-error` comes from KVM.
                "STOP" => {
                    let state = qemu.qmp().execute("query-status", json!({}));
                    let state = state
                        .ok()
                        .and_then(|state| Some(state.get("status")?.as_str()?.to_owned()));
                    match state.as_deref() {
                        Some("running") => continue,
                        state => format!(
                            "the guest was stopped by QEMU in the state `{}`",
                            state.unwrap_or("unknown")
                        ),
                    }
                }
                "SHUTDOWN" | "RESET" => "the guest ended or restarted while it booted".to_owned(),
                "GUEST_PANICKED" => "the guest's kernel panicked".to_owned(),
                _ => continue,
            };
            return failed(qemu, what, !self.kernel_runs);
        }
        if !self.kernel_runs {
            if instruction_pointer(qemu).is_some_and(|address| address >= UPPER_HALF) {
                self.kernel_runs = true;
                return Look::KernelRuns;
            }
            let times = fs::read_to_string(&self.first_cpu).ok();
            if let Some(times) = times.as_deref().and_then(Times::read)
                && times.show_emulation()
            {
                let what = format!(
                    "its first CPU has spent {:.1} s in the host's kernel and {:.1} s in the guest, whose kernel has not unpacked itself yet: this KVM emulates instructions one by one",
                    times.kernel.as_secs_f64(),
                    times.guest.as_secs_f64()
                );
                return failed(qemu, what, true);
            }
            let waited = self.begin.elapsed();
            if let Some(limit) = self.limits.unpack.filter(|limit| waited > *limit) {
                let what = format!(
                    "the guest's kernel has not unpacked itself within {:.0} s",
                    limit.as_secs_f64()
                );
                return failed(qemu, what, true);
            }
        }
        if self.begin.elapsed() > self.limits.hello {
            let what = format!(
                "the guest's agent has not answered within {:.0} s",
                self.limits.hello.as_secs_f64()
            );
            return failed(qemu, what, false);
        }
        Look::Booting
    }

    /// Returns the time limit for the agent's first message.
    pub(super) fn timeout(&self) -> Duration {
        self.limits.hello
    }

    /// Returns the time since the guest was started.
    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }
}

fn failed(qemu: &Qemu, what: String, accelerator: bool) -> Look {
    Look::Failed(Failure {
        what,
        accelerator,
        stderr: qemu.stderr_tail(),
        console: qemu.console_tail(CONSOLE_LINES),
    })
}

/// CPU time of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    kernel: Duration,
    guest: Duration,
}

impl Times {
    /// Parses `/proc/PID/task/TID/stat` (proc_pid_stat(5)): field 15 is the time in the kernel, 43
    /// that in a guest, in clock ticks.
    fn read(stat: &str) -> Option<Self> {
        // The name may contain spaces and parentheses; the first field after it is number 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let time = |number: usize| {
            let value: u64 = fields.get(number - 3)?.parse().ok()?;
            Some(Duration::from_millis(value * 1000 / ticks))
        };
        Some(Self {
            kernel: time(15)?,
            guest: time(43)?,
        })
    }

    fn show_emulation(self) -> bool {
        self.kernel >= IN_KERNEL && self.kernel > self.guest * IN_KERNEL_RATIO
    }
}

/// Returns the first CPU's instruction pointer from the monitor's register dump: `RIP=…` on x86,
/// `PC=…` on arm64.
fn instruction_pointer(qemu: &Qemu) -> Option<u64> {
    let answer = qemu.qmp().execute(
        "human-monitor-command",
        json!({"command-line": "info registers"}),
    );
    pointer_in(answer.ok()?.as_str()?)
}

fn pointer_in(registers: &str) -> Option<u64> {
    registers.split_whitespace().find_map(|word| {
        let digits = word
            .strip_prefix("RIP=")
            .or_else(|| word.strip_prefix("PC="))?;
        u64::from_str_radix(digits, 16).ok()
    })
}

/// Returns the failure as a finding about KVM.
pub(super) fn kvm_runs_no_guest(failure: &Failure) -> Finding {
    let mut what = format!(
        "KVM is available and boots no Linux guest: {}",
        failure.what
    );
    if failure.stderr != "nothing" {
        what.push_str(&format!("; QEMU reports: {}", failure.stderr));
    }
    KVM.finding("/dev/kvm", what)
        .values("no guest boots", "a guest that boots")
        .fix("measure `vm:tcg` (emulated, without deadline verdicts)\nmeasure with `--on sim`\nin a guest, enable nested virtualisation in its hypervisor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_instruction_pointer() {
        let x86 = "\nCPU#0\nRAX=0 RBX=1\nRIP=ffffffff81002fff RFL=00000046 [---Z-P-] CPL=0 HLT=0\n";
        let arm = " PC=ffff800008010000 X00=0\n";
        assert_eq!(pointer_in(x86), Some(0xffff_ffff_8100_2fff));
        assert!(pointer_in(arm).is_some_and(|address| address >= UPPER_HALF));
        assert!(pointer_in("RIP=0000000004f39f80").is_some_and(|address| address < UPPER_HALF));
        assert_eq!(pointer_in("EIP=fff0"), None);
    }

    #[test]
    fn detects_an_emulating_kvm_by_its_cpu_time() {
        let stat = |kernel: u64, guest: u64| {
            let zeros = |count: usize| vec!["0"; count].join(" ");
            let text = format!(
                "7 (CPU 0/KVM) S {} {kernel} {} {guest} 0",
                zeros(11),
                zeros(27)
            );
            Times::read(&text).expect("times")
        };
        let second = rustix::param::clock_ticks_per_second();
        assert_eq!(stat(second, 0).kernel, Duration::from_secs(1));
        assert_eq!(stat(0, 2 * second).guest, Duration::from_secs(2));
        assert!(stat(4 * second, 0).show_emulation());
        assert!(!stat(second, 0).show_emulation(), "too early to tell");
        assert!(!stat(4 * second, second).show_emulation());
        assert_eq!(Times::read("7 (x) S 1"), None);
    }

    #[test]
    fn extends_limits_on_an_emulated_machine() {
        let plain = Limits::of(Accelerator::Kvm, false);
        let emulated = Limits::of(Accelerator::Kvm, true);
        assert!(emulated.hello > plain.hello && emulated.unpack > plain.unpack);
        assert_eq!(Limits::of(Accelerator::Tcg, false).unpack, None);
    }
}
