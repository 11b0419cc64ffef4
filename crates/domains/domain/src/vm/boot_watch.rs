// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches a guest that boots: whether it ends, is stopped by an error of KVM, or gets nowhere.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rampart_model::{Accelerator, Finding, Severity};
use rampart_qemu::Qemu;
use serde_json::json;

/// Addresses from here on are the kernel's own on every 64-bit Linux: the upper half.
const UPPER_HALF: u64 = 0x8000_0000_0000_0000;
/// A kernel unpacks itself in a second or two and goes on in the upper half. On a machine that is
/// emulated itself, starting to count here, it takes twenty.
const UNPACK_LIMIT: Duration = Duration::from_secs(60);
/// A virtual CPU that has spent this long in the host's kernel, and next to nothing in the guest,
/// has its instructions carried out one by one by the host's kernel.
const IN_KERNEL: Duration = Duration::from_secs(3);
/// How much time in the kernel is too much for the time in the guest. Healthy KVM is far below 1.
const IN_KERNEL_RATIO: u32 = 10;
/// From its start until the agent's first word. It takes two seconds on a plain machine.
const HELLO_LIMIT: Duration = Duration::from_secs(60);
/// How much slower an emulated machine is than a plain one, with a wide margin.
const EMULATED_FACTOR: u32 = 8;
/// Lines of the console in a message.
const CONSOLE_LINES: usize = 12;

/// How long a guest may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Until its kernel has unpacked itself; none where that says nothing.
    pub(super) unpack: Option<Duration>,
    /// Until its first word.
    pub(super) hello: Duration,
}

impl Limits {
    /// `emulated`: whether the machine under us is emulated itself.
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

/// What a look at a booting guest shows.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing new.
    Booting,
    /// Its kernel runs.
    KernelRuns,
    /// It will not come up.
    Failed(Failure),
}

/// Why a guest does not come up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// In a sentence without a full stop.
    pub(super) what: String,
    /// Whether the fault is that of the accelerator, not of this guest.
    pub(super) accelerator: bool,
    /// What QEMU said.
    pub(super) said: String,
    /// The end of its console.
    pub(super) console: Vec<String>,
}

/// A watch over one guest.
#[derive(Debug)]
pub(super) struct Watch {
    begin: Instant,
    limits: Limits,
    kernel_runs: bool,
    /// `/proc/PID/task/TID/stat` of the first virtual CPU.
    first_cpu: PathBuf,
}

impl Watch {
    /// To be made when the guest is let go; `first_cpu` is the thread of its first virtual CPU.
    pub(super) fn new(limits: Limits, process: u32, first_cpu: u32) -> Self {
        Self {
            begin: Instant::now(),
            limits,
            kernel_runs: limits.unpack.is_none(),
            first_cpu: PathBuf::from(format!("/proc/{process}/task/{first_cpu}/stat")),
        }
    }

    /// Looks at the guest. Costs it nothing but the reading of its registers, until its kernel
    /// runs.
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
                // STOP comes with the reason in the state: `internal-error` is KVM's.
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
                && times.are_of_emulation()
            {
                let what = format!(
                    "its first CPU has spent {:.1} s in the host's kernel and {:.1} s in the guest, whose kernel has not even unpacked itself: this KVM carries out instructions one by one",
                    times.kernel.as_secs_f64(),
                    times.guest.as_secs_f64()
                );
                return failed(qemu, what, true);
            }
            let waited = self.begin.elapsed();
            if let Some(limit) = self.limits.unpack.filter(|limit| waited > *limit) {
                let what = format!(
                    "the guest's kernel has not even unpacked itself within {:.0} s",
                    limit.as_secs_f64()
                );
                return failed(qemu, what, true);
            }
        }
        if self.begin.elapsed() > self.limits.hello {
            let what = format!(
                "the guest has not said a word within {:.0} s",
                self.limits.hello.as_secs_f64()
            );
            return failed(qemu, what, false);
        }
        Look::Booting
    }

    /// How long a guest may take until its first word.
    pub(super) fn patience(&self) -> Duration {
        self.limits.hello
    }

    /// Since the guest was let go.
    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }
}

fn failed(qemu: &Qemu, what: String, accelerator: bool) -> Look {
    Look::Failed(Failure {
        what,
        accelerator,
        said: qemu.said(),
        console: qemu.console_tail(CONSOLE_LINES),
    })
}

/// What a thread spent its time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    kernel: Duration,
    guest: Duration,
}

impl Times {
    /// From `/proc/PID/task/TID/stat` (proc_pid_stat(5)): field 15 is the time in the kernel, 43
    /// that in a guest, in clock ticks.
    fn read(stat: &str) -> Option<Self> {
        // The name may hold spaces and parentheses; the first field after it is number 3.
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

    fn are_of_emulation(self) -> bool {
        self.kernel >= IN_KERNEL && self.kernel > self.guest * IN_KERNEL_RATIO
    }
}

/// Where the first CPU is, from the monitor's register dump: `RIP=…` on x86, `PC=…` on arm64.
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

/// As a finding against KVM.
pub(super) fn kvm_runs_no_guest(failure: &Failure) -> Finding {
    let mut what = format!(
        "KVM is there and brings no Linux guest up: {}",
        failure.what
    );
    if failure.said != "nothing" {
        what.push_str(&format!("; QEMU says: {}", failure.said));
    }
    Finding::new(Severity::Error, "/dev/kvm", what)
        .values("no guest comes up", "a guest that boots")
        .fix("measure `vm:tcg` (emulated, without deadline verdicts), or `--on sim`; in a guest, switch nested virtualisation on in the hypervisor under it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_processor_is_read() {
        let x86 = "\nCPU#0\nRAX=0 RBX=1\nRIP=ffffffff81002fff RFL=00000046 [---Z-P-] CPL=0 HLT=0\n";
        let arm = " PC=ffff800008010000 X00=0\n";
        assert_eq!(pointer_in(x86), Some(0xffff_ffff_8100_2fff));
        assert!(pointer_in(arm).is_some_and(|address| address >= UPPER_HALF));
        assert!(pointer_in("RIP=0000000004f39f80").is_some_and(|address| address < UPPER_HALF));
        assert_eq!(pointer_in("EIP=fff0"), None);
    }

    #[test]
    fn a_kvm_that_emulates_is_known_by_where_its_time_goes() {
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
        assert!(stat(4 * second, 0).are_of_emulation());
        assert!(!stat(second, 0).are_of_emulation(), "too early to tell");
        assert!(!stat(4 * second, second).are_of_emulation());
        assert_eq!(Times::read("7 (x) S 1"), None);
    }

    #[test]
    fn an_emulated_machine_gets_more_time() {
        let plain = Limits::of(Accelerator::Kvm, false);
        let emulated = Limits::of(Accelerator::Kvm, true);
        assert!(emulated.hello > plain.hello && emulated.unpack > plain.unpack);
        assert_eq!(Limits::of(Accelerator::Tcg, false).unpack, None);
    }
}
