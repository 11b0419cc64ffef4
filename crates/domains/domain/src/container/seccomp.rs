// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls that a meter in a container may make; all others fail with EPERM.
//!
//! The list contains what a static program with threads, the meters' clocks and sleeps, and the
//! runtime's last steps before `execve` need: no sockets, mounts, namespaces, tracing, keys or
//! modules.

use serde_json::{Value, json};

/// Allowed with any arguments. Runtimes skip a name that an architecture lacks (`poll` on arm64).
const ALLOWED: &[&str] = &[
    // Memory.
    "brk",
    "madvise",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mprotect",
    "mremap",
    "munlock",
    "munlockall",
    "munmap",
    // Threads and processes.
    "arch_prctl",
    "execve",
    "exit",
    "exit_group",
    "futex",
    "get_robust_list",
    "getegid",
    "geteuid",
    "getgid",
    "getpgid",
    "getpid",
    "getppid",
    "gettid",
    "getuid",
    "membarrier",
    "prctl",
    "restart_syscall",
    "rseq",
    "set_robust_list",
    "set_tid_address",
    "tgkill",
    "wait4",
    // Scheduling. Without CAP_SYS_NICE and with the limits of the bundle none of these raises a
    // priority.
    "getcpu",
    "getpriority",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    // Time.
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "gettimeofday",
    "nanosleep",
    "timer_create",
    "timer_delete",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "times",
    // Signals.
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "sigaltstack",
    "signalfd4",
    // Files: its standard streams, /proc and /sys.
    "access",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "eventfd2",
    "faccessat",
    "faccessat2",
    "fcntl",
    "fstat",
    "fstatfs",
    "getcwd",
    "getdents64",
    "ioctl",
    "lseek",
    "newfstatat",
    "open",
    "openat",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "pread64",
    "pselect6",
    "pwrite64",
    "read",
    "readlink",
    "readlinkat",
    "readv",
    "stat",
    "statfs",
    "statx",
    "write",
    "writev",
    // Others.
    "capget",
    "getrandom",
    "getrlimit",
    "getrusage",
    "prlimit64",
    "sysinfo",
    "uname",
];

/// All `CLONE_NEW*` flags of include/uapi/linux/sched.h that `clone` accepts.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// errno of an unknown call: C libraries fall back from `clone3`, whose flags a filter cannot read,
/// to `clone`.
const ENOSYS: u32 = 38;

/// Returns the filter in the form of the OCI runtime specification (config-linux.md, "Seccomp").
pub(super) fn filter(architecture: &str) -> Value {
    let architectures: &[&str] = match architecture {
        "aarch64" => &["SCMP_ARCH_AARCH64"],
        _ => &["SCMP_ARCH_X86_64"],
    };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": architectures,
        "syscalls": [
            { "names": ALLOWED, "action": "SCMP_ACT_ALLOW" },
            {
                "names": ["clone"],
                "action": "SCMP_ACT_ALLOW",
                "args": [{ "index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }]
            },
            { "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_no_dangerous_call() {
        for name in [
            "mount",
            "ptrace",
            "bpf",
            "socket",
            "setns",
            "unshare",
            "keyctl",
            "perf_event_open",
            "init_module",
            "iopl",
            "reboot",
            "clone3",
            "clone",
            "kexec_load",
            "process_vm_writev",
        ] {
            assert!(!ALLOWED.contains(&name), "{name}");
        }
    }

    #[test]
    fn lists_each_call_once() {
        let unique: std::collections::BTreeSet<_> = ALLOWED.iter().collect();
        assert_eq!(unique.len(), ALLOWED.len());
    }
}
