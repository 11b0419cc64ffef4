// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a knob by its own name or by the kernel's: a boot parameter, a sysctl, a file, a kernel
//! thread, an option of the kernel's configuration.

use rampart_model::nearest;

use crate::{Knob, Location, all, all_rules};

/// Names in use that no location of the catalogue has, or that several have.
const ALIASES: [(&str, &str); 27] = [
    ("isolcpus", "scheduler-isolation"),
    ("managed_irq", "managed-interrupts"),
    ("nosmt", "simultaneous-multithreading"),
    ("smt", "simultaneous-multithreading"),
    ("hyperthreading", "simultaneous-multithreading"),
    ("thp", "transparent-huge-pages"),
    ("transparent_hugepage", "transparent-huge-pages"),
    ("khugepaged", "huge-page-collector"),
    ("ksm", "same-page-merging"),
    ("hugetlb", "huge-pages"),
    ("rt_throttling", "real-time-throttling"),
    ("smp_affinity", "interrupt-affinity"),
    ("smp_affinity_list", "interrupt-affinity"),
    ("clocksource", "clock-source"),
    ("preempt", "preempt-mode"),
    ("config_preempt_rt", "preempt-rt"),
    ("max_cstate", "intel-idle-limit"),
    ("cstates", "idle-states"),
    ("c_states", "idle-states"),
    ("cpuidle", "idle-states"),
    ("cpufreq", "governor"),
    ("nowatchdog", "lockup-watchdog"),
    ("nosoftlockup", "lockup-watchdog"),
    ("smi", "firmware-interrupts"),
    ("resctrl", "cache-allocation"),
    ("memlock", "locked-memory-limit"),
    ("rtprio", "real-time-priority-limit"),
];

/// Finds the knob that a user means: by its own name, where `_` and `-` are the same, or by a name
/// of the kernel such as `isolcpus`, `sched_rt_runtime_us`, `kernel.sched_rt_runtime_us`,
/// `/proc/sys/kernel/sched_rt_runtime_us`, `cpu_dma_latency`, `CONFIG_NO_HZ_FULL` or `ksoftirqd`.
///
/// # Errors
/// Returns the message and the fix if no knob or several have the name.
pub fn find(name: &str) -> Result<&'static Knob, (String, String)> {
    let word = plain(name);
    if let Some(knob) = all().find(|knob| plain(knob.name) == word) {
        return Ok(knob);
    }
    if let Some((_, meant)) = ALIASES.iter().find(|(alias, _)| plain(alias) == word) {
        return crate::named(meant).ok_or_else(|| unknown(name));
    }
    let found: Vec<&'static Knob> = all()
        .filter(|knob| kernel_names(knob.location).any(|kernel| is_called(&kernel, name, &word)))
        .collect();
    match found.as_slice() {
        [knob] => Ok(knob),
        [] => Err(unknown(name)),
        several => {
            let names: Vec<&str> = several.iter().map(|knob| knob.name).collect();
            Err((
                format!("`{}` is a name of several knobs", name.escape_debug()),
                format!("write {}", names.join(" or ")),
            ))
        }
    }
}

/// Returns the message and the fix for an unknown knob. The fix suggests the nearest knob, by its
/// own name or by that of the kernel, else the nearest other rule, and names that contain the given
/// one.
#[must_use]
pub fn unknown(name: &str) -> (String, String) {
    let word = plain(name);
    let kernel: Vec<(String, &str)> = all()
        .flat_map(|knob| kernel_names(knob.location).map(|kernel| (kernel, knob.name)))
        .collect();
    let known: Vec<(&str, &str)> = all()
        .map(|knob| (knob.name, knob.name))
        .chain(ALIASES)
        .chain(
            kernel
                .iter()
                .map(|(kernel, knob)| (last_part(kernel), *knob)),
        )
        .collect();
    let meant = nearest(name, known.iter().map(|(known, _)| *known))
        .and_then(|near| known.iter().find(|(known, _)| *known == near))
        .map(|(_, knob)| *knob)
        .or_else(|| nearest(name, all_rules().map(|rule| rule.id)));
    let contain = all()
        .map(|knob| knob.name)
        .filter(|known| word.len() >= 4 && plain(known).contains(&word));
    let mut near: Vec<&str> = meant.into_iter().collect();
    near.extend(contain.filter(|known| Some(*known) != meant));
    let fix = if near.is_empty() {
        "`rampart knobs` lists all".to_owned()
    } else {
        format!("perhaps {}; `rampart knobs` lists all", near.join(", "))
    };
    (format!("there is no knob `{}`", name.escape_debug()), fix)
}

/// Returns a name without the differences that the kernel and sysctl(8) ignore.
fn plain(name: &str) -> String {
    name.trim_end_matches('=').to_lowercase().replace('-', "_")
}

/// Returns the names of the kernel for a location: parameters, paths, threads, options.
fn kernel_names(location: Location) -> impl Iterator<Item = String> {
    let names: Vec<String> = match location {
        Location::File(_, paths) | Location::Exists(paths) => {
            paths.iter().map(|path| (*path).to_owned()).collect()
        }
        // Its text may name several files.
        Location::Fact(_, text) => text
            .split([',', ' '])
            .filter(|part| part.starts_with('/'))
            .map(str::to_owned)
            .collect(),
        Location::Boot { parameter, .. } => vec![parameter.to_owned()],
        Location::KernelOption(option) => vec![option.to_owned()],
        Location::ThreadPolicy(threads) | Location::ThreadAffinity(threads) => threads
            .iter()
            .filter_map(|thread| thread.split(['/', '*']).next())
            .filter(|thread| !thread.is_empty())
            .map(str::to_owned)
            .collect(),
        Location::Program(programs) => programs.iter().map(|name| (*name).to_owned()).collect(),
        Location::Guest(_) | Location::KernelLog(_) => Vec::new(),
    };
    names.into_iter()
}

/// Returns the last part of a path, and other names as they are.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns whether `name` names the file, parameter, thread or option `kernel`.
fn is_called(kernel: &str, name: &str, word: &str) -> bool {
    if !kernel.starts_with('/') {
        return plain(kernel) == word;
    }
    let path = plain(kernel);
    if name.contains('/') {
        // A path, or its end, as in `transparent_hugepage/enabled`.
        return is_path(&path, word);
    }
    if let Some(sysctl) = path.strip_prefix("/proc/sys/") {
        return word == sysctl.replace('/', ".") || word == last_part(sysctl);
    }
    if let Some((module, parameter)) = path
        .strip_prefix("/sys/module/")
        .and_then(|rest| rest.split_once("/parameters/"))
        && word == format!("{module}.{parameter}")
    {
        return true;
    }
    // A short name such as `run` or `enabled` belongs to too many files.
    let last = last_part(&path);
    word == last && (path.starts_with("/dev/") || last.contains('_'))
}

/// Returns whether the last parts of `path` are `end`; a part of `path` with braces is any text.
fn is_path(path: &str, end: &str) -> bool {
    let mut parts = path.rsplit('/');
    let ends = end
        .strip_prefix('/')
        .unwrap_or(end)
        .rsplit('/')
        .all(|end| parts.next().is_some_and(|part| is_part(part, end)));
    // Only the empty part before the first slash may be left of a path from the root.
    ends && (!end.starts_with('/') || parts.eq([""]))
}

/// Returns whether a part of a path is `text`, where `{name}` is any text.
fn is_part(part: &str, text: &str) -> bool {
    match (part.find('{'), part.find('}')) {
        (Some(open), Some(close)) if open < close => {
            text.len() > part.len() - (close + 1 - open)
                && text.starts_with(&part[..open])
                && text.ends_with(&part[close + 1..])
        }
        _ => part == text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn finds_knobs_by_the_names_of_the_kernel() {
        for (name, knob) in [
            ("scheduler-isolation", "scheduler-isolation"),
            ("isolcpus", "scheduler-isolation"),
            ("isolcpus=", "scheduler-isolation"),
            ("nohz_full", "nohz-full"),
            ("rcu_nocbs", "rcu-nocbs"),
            ("irqaffinity", "irqaffinity"),
            ("idle", "idle-poll"),
            ("intel_idle.max_cstate", "intel-idle-limit"),
            ("sched_rt_runtime_us", "real-time-throttling"),
            ("kernel.sched_rt_runtime_us", "real-time-throttling"),
            (
                "/proc/sys/kernel/sched_rt_runtime_us",
                "real-time-throttling",
            ),
            ("kernel/sched_rt_runtime_us", "real-time-throttling"),
            ("vm.swappiness", "swappiness"),
            ("cpu_dma_latency", "latency-request"),
            ("/dev/cpu_dma_latency", "latency-request"),
            ("thp", "transparent-huge-pages"),
            ("transparent_hugepage", "transparent-huge-pages"),
            ("transparent_hugepage/enabled", "transparent-huge-pages"),
            ("smt", "simultaneous-multithreading"),
            ("ksm/run", "same-page-merging"),
            ("scaling_governor", "governor"),
            (
                "/sys/devices/system/cpu/cpu3/power/energy_perf_bias",
                "energy-bias",
            ),
            ("kvm.halt_poll_ns", "kvm-halt-polling"),
            ("halt_poll_ns", "kvm-halt-polling"),
            ("CONFIG_NO_HZ_FULL", "config-no-hz-full"),
            ("CONFIG_PREEMPT_RT", "preempt-rt"),
            ("ksoftirqd", "ksoftirqd-priority"),
            ("rtkit-daemon", "rtkit"),
        ] {
            assert_eq!(find(name).map(|knob| knob.name), Ok(knob), "{name}");
        }
    }

    #[test]
    fn refuses_names_of_several_knobs_and_of_none() {
        for (name, words) in [
            (
                "irq",
                "interrupt-thread-priority or interrupt-thread-affinity",
            ),
            ("enabled", "`rampart knobs` lists all"),
            ("run", "`rampart knobs` lists all"),
            ("", "`rampart knobs` lists all"),
            ("/", "`rampart knobs` lists all"),
            ("sched_rt_runtime", "perhaps real-time-throttling"),
            ("isolcpu", "perhaps scheduler-isolation"),
            ("timer-migratoin", "perhaps timer-migration"),
            ("nohz_ful", "perhaps nohz-full"),
        ] {
            let (what, fix) = find(name).expect_err(name);
            assert!(fix.contains(words), "{name}: {what}; {fix}");
        }
    }

    #[test]
    fn every_alias_is_needed_and_has_its_knob() {
        for (alias, knob) in ALIASES {
            assert!(crate::named(knob).is_some(), "{alias}: {knob}");
            assert!(
                all().all(|knob| plain(knob.name) != plain(alias)),
                "{alias}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[a-z_/.{}-]{0,30}|.{0,20}") {
            let _ = find(&text);
        }
    }
}
