// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads inside a domain that has its own kernel, whose processes are not visible from here: the
//! same stressors, with the resource usage that they report.

use std::path::Path;

use rampart_model::{CpuId, CpuSet, LoadKind, Nanos, StressorRecord};

use crate::stressor;

/// Memory of a stressor; less than on this machine, because a guest has little.
const MEMORY: u64 = 32 << 20;

/// Loads that the meter makes itself if there is no other program: those of CPU and memory.
pub const METERS_OWN: [LoadKind; 3] = [LoadKind::Cpu, LoadKind::Memory, LoadKind::Cache];
/// The prefix of its lines.
const METERS_LINE: &str = "rampart-meter load: ";

/// Returns the command of the stressor of one CPU, as numbered by the domain's own kernel. It ends
/// by itself after `duration`, rounded up to seconds, and then reports its CPU time.
#[must_use]
pub fn command_inside(load: LoadKind, cpu: CpuId, duration: Nanos) -> Vec<String> {
    let mut command = vec!["stress-ng".to_owned()];
    let options = stressor::options(load, cpu, Path::new("/tmp"), MEMORY);
    let mut options = options.into_iter();
    while let Some(option) = options.next() {
        let is_time = option == "--timeout";
        command.push(option);
        if is_time {
            options.next();
            command.push(format!("{}s", duration.0.div_ceil(Nanos::SECOND.0).max(1)));
        }
    }
    // These options make it report the begin and the end of its stressors.
    command.extend(["--verbose", "--stdout", "--metrics-brief"].map(str::to_owned));
    command
}

/// Returns the same for a domain with only the meter, which makes the load itself (`rampart-meter
/// load`). Returns `None` for a load that the meter does not make.
#[must_use]
pub fn meter_command_inside(load: LoadKind, cpu: CpuId, duration: Nanos) -> Option<Vec<String>> {
    if !METERS_OWN.contains(&load) {
        return None;
    }
    let seconds = duration.0.div_ceil(Nanos::SECOND.0).max(1);
    let kind = load.word();
    let words = format!("rampart-meter load {kind} --cpu {cpu} --seconds {seconds}");
    Some(words.split(' ').map(str::to_owned).collect())
}

/// Returns whether the stressor has begun, from its output so far: `cpu: started [7] (instance 0)`,
/// in newer versions `cpu: [7] started (instance 0 on CPU 1)`.
#[must_use]
pub fn has_begun(output: &str) -> bool {
    whole_lines(output).any(|line| {
        (line.contains(" started ") && line.contains("(instance"))
            || (line.starts_with(METERS_LINE) && line.contains(" begun on CPU "))
    })
}

/// Returns whether it has ended, from its output so far.
#[must_use]
pub fn has_ended(output: &str) -> bool {
    whole_lines(output).any(|line| {
        (line.contains(" exited ") && line.contains("(instance")) || times(line).is_some()
    })
}

/// Returns the complete lines.
fn whole_lines(output: &str) -> impl Iterator<Item = &str> {
    output
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
}

/// Returns the record of such a stressor from its own report: the CPU time in its metrics line
/// (stress-ng(1), `--metrics-brief`). Without that line, it did not end normally. It fails if it used
/// less than `share` (0 to 1) of its CPU in the time that it reports, or in `measured` if that is longer.
#[must_use]
pub fn record_inside(
    command: Vec<String>,
    cpu: CpuId,
    output: &str,
    measured: Nanos,
    share: f64,
) -> StressorRecord {
    let times = output.lines().find_map(times);
    let used = times.map(|times| times.used);
    let failure = match times {
        Some(Times { used, .. }) if used == Nanos::ZERO => Some("it used no CPU time".to_owned()),
        Some(Times { used, real }) => {
            let real = real.unwrap_or_default().max(measured);
            let found = used.as_secs_f64() / real.as_secs_f64().max(1e-9);
            (found < share).then(|| {
                format!(
                    "it used CPU {cpu} for {:.0} % of the time ({used} in {real}), needed {:.0} %; \
                     fix: end other programs on this CPU inside the domain",
                    found * 100.0,
                    share * 100.0
                )
            })
        }
        None => {
            let tail: Vec<&str> = output.lines().rev().take(3).collect();
            Some(format!(
                "it did not end, last output: {}",
                if tail.is_empty() {
                    "nothing".to_owned()
                } else {
                    tail.into_iter().rev().collect::<Vec<_>>().join("; ")
                }
            ))
        }
    };
    StressorRecord {
        command,
        cpus: CpuSet::single(cpu),
        cpu_time: used.unwrap_or_default(),
        failure,
    }
}

/// The times in the report of a stressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    /// Its CPU time.
    used: Nanos,
    /// The time from its begin to its end, if the report has it.
    real: Option<Nanos>,
}

/// Parses the times of a metrics line: `stress-ng: metrc: [18971] cpu  2841  2.00  1.95  0.00
/// 1418.66  1450.49` has name, operations, real time, user time, system time. Older versions print
/// `info` instead of `metrc`.
///
/// The meter prints `rampart-meter load: cache ended, CPU time 1950000000 ns`.
fn times(line: &str) -> Option<Times> {
    if let Some(output) = line.strip_prefix(METERS_LINE) {
        let (_, time) = output.split_once(" ended, CPU time ")?;
        return Some(Times {
            used: Nanos(time.strip_suffix(" ns")?.parse().ok()?),
            real: None,
        });
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, _, operations, real, user, system, ..] = words.as_slice() else {
        return None;
    };
    operations.parse::<u64>().ok()?;
    let real = real.parse::<f64>().ok()?;
    let seconds = user.parse::<f64>().ok()? + system.parse::<f64>().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(Times {
        used: Nanos((seconds * 1e9) as u64),
        real: Some(Nanos((real * 1e9) as u64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As stress-ng 0.15.06 prints it.
    const OUTPUT: &str = "\
stress-ng: info:  [18971] setting to a 2 second run per stressor
stress-ng: info:  [18971] dispatching hogs: 1 cpu
stress-ng: metrc: [18971] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s
stress-ng: metrc: [18971]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)
stress-ng: metrc: [18971] cpu                2841      2.00      1.95      0.01      1418.66        1450.49
stress-ng: info:  [18971] successful run completed in 2.00s
";

    #[test]
    fn command_ends_by_itself() {
        let command = command_inside(LoadKind::Cache, CpuId(1), Nanos::from_millis(2500));
        assert_eq!(
            command.join(" "),
            "stress-ng --cache 1 --cache-level 3 --cache-no-affinity --taskset 1 --timeout 3s --temp-path /tmp --verbose --stdout --metrics-brief"
        );
    }

    /// As stress-ng 0.15.06 and 0.17.06 print it.
    #[test]
    fn recognises_begin_and_end() {
        let before =
            "stress-ng: debug: [8] starting stressors\nstress-ng: debug: [8] 1 stressor started\n";
        let old = "stress-ng: debug: [9] cpu: started [9] (instance 0)\n";
        let new = "stress-ng: debug: [9] cpu: [9] started (instance 0 on CPU 1)\n";
        assert!(!has_begun(before) && !has_begun(&old[..old.len() - 1]));
        for started in [old, new] {
            assert!(has_begun(&format!("{before}{started}")));
            assert!(!has_ended(&format!("{before}{started}")));
        }
        assert!(has_ended(
            "stress-ng: debug: [9] cpu: exited [9] (instance 0)\n"
        ));
        assert!(has_ended(OUTPUT) && !has_ended(before));
    }

    #[test]
    fn reads_the_cpu_time_of_the_metrics_line() {
        let record_inside = |output: &str| {
            let measured = Nanos::from_millis(1500);
            record_inside(Vec::new(), CpuId(3), output, measured, 0.5)
        };
        let record = record_inside(OUTPUT);
        assert_eq!(record.failure, None);
        assert_eq!(record.cpu_time, Nanos::from_millis(1960));
        let broken_off = OUTPUT.lines().take(2).collect::<Vec<_>>().join("\n");
        let record = record_inside(&broken_off);
        assert!(
            record
                .failure
                .is_some_and(|why| why.contains("dispatching"))
        );
        let idle = OUTPUT.replace("1.95      0.01", "0.00      0.00");
        assert!(record_inside(&idle).failure.is_some());
        assert!(record_inside("").failure.is_some());
    }

    /// Beside a program of others, or under a limit of its group.
    #[test]
    fn a_load_that_used_little_of_its_cpu_did_not_run() {
        let failure = |output: &str, measured: u64, share: f64| {
            let measured = Nanos::from_millis(measured);
            record_inside(Vec::new(), CpuId(3), output, measured, share).failure
        };
        let starved = OUTPUT.replace("1.95      0.01", "0.10      0.02");
        let text = failure(&starved, 300, 0.5).expect("a failure");
        assert!(text.contains("6 % of the time (120 ms in 2 s)"), "{text}");
        assert_eq!(failure(&starved, 300, 0.05), None);
        // The meter does not report how long it ran: at least as long as was measured.
        let ended = "rampart-meter load: cache ended, CPU time 700000000 ns\n";
        assert_eq!(failure(ended, 1300, 0.5), None);
        assert!(failure(ended, 1500, 0.5).is_some());
    }

    #[test]
    fn reads_the_lines_of_the_meter() {
        let second = Nanos::from_secs(1);
        let command = meter_command_inside(LoadKind::Cache, CpuId(1), Nanos(second.0 + 1));
        let words = "rampart-meter load cache --cpu 1 --seconds 2";
        assert_eq!(command.expect("a load").join(" "), words);
        assert_eq!(meter_command_inside(LoadKind::Io, CpuId(1), second), None);
        let begun = "rampart-meter load: cache begun on CPU 1\n";
        let ended = "rampart-meter load: cache ended, CPU time 950000000 ns\n";
        assert!(has_begun(begun) && !has_ended(begun));
        assert!(!has_begun(&begun[..20]), "not a whole line");
        let output = [begun, ended].concat();
        assert!(has_ended(&output));
        let record = |output: &str| record_inside(Vec::new(), CpuId(1), output, second, 0.5);
        let ran = record(&output);
        assert_eq!((ran.cpu_time.0, ran.failure), (950_000_000, None));
        assert!(record(begun).failure.is_some());
    }
}
