// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mechanisms with which this kernel limits real-time threads.

use rampart_model::{CpuId, Nanos};

use super::files;
use crate::throttling::RealTimeLimit;

/// Returns every mechanism that may limit threads on `cpu`.
pub(crate) fn of_cpu(cpu: CpuId) -> Vec<RealTimeLimit> {
    throttling().into_iter().chain(fair_server(cpu)).collect()
}

fn throttling() -> Option<RealTimeLimit> {
    const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let runtime = files::number(RUNTIME)?;
    let period = files::number("/proc/sys/kernel/sched_rt_period_us")?;
    // −1 means no limit.
    let runtime_micros = u64::try_from(runtime).ok()?;
    let period_micros = u64::try_from(period).ok()?;
    Some(RealTimeLimit {
        name: "real-time throttling".to_owned(),
        location: RUNTIME.to_owned(),
        present: format!("{runtime} of {period} µs"),
        fix: "sysctl kernel.sched_rt_runtime_us=-1".to_owned(),
        taken: Nanos::from_micros(period_micros.saturating_sub(runtime_micros)),
        period: Nanos::from_micros(period_micros),
    })
}

/// Returns the fair server: its settings from debugfs if available, otherwise the defaults of the
/// kernels that have it (6.12 and later, kernel/sched/fair.c: 50 ms in each 1 s).
fn fair_server(cpu: CpuId) -> Option<RealTimeLimit> {
    let directory = format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}");
    let nanos = |name: &str| u64::try_from(files::number(format!("{directory}/{name}"))?).ok();
    let (runtime, period, present) = match (nanos("runtime"), nanos("period")) {
        (Some(runtime), Some(period)) => (runtime, period, format!("{runtime} of {period} ns")),
        _ => {
            let release = files::text("/proc/sys/kernel/osrelease")?;
            if version(&release)? < (6, 12) {
                return None;
            }
            let present = "unreadable; by default 50 ms of 1 s".to_owned();
            (50_000_000, 1_000_000_000, present)
        }
    };
    Some(RealTimeLimit {
        name: "the fair server".to_owned(),
        location: format!("{directory}/runtime"),
        present,
        fix: format!("echo 0 > {directory}/runtime (debugfs has to be mounted)"),
        taken: Nanos(runtime),
        period: Nanos(period),
    })
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|character: char| !character.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("6.1.0-56-rt-amd64"), Some((6, 1)));
        assert_eq!(version("unknown"), None);
    }
}
