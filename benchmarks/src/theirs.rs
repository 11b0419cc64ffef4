// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs cyclictest or oslat (rt-tests) once and parses the JSON that they write.
//!
//! Properties of that JSON: keys end in a colon (`rt_test_version:`); samples beyond the range of the
//! histogram are not counted in it, they are `cycles` minus the sum of the histogram; with `-N`
//! cyclictest's values and range are in nanoseconds instead of microseconds, and the range is at most
//! a million of that unit; oslat adds the overflow to its last bucket.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rampart_model::{CpuId, Nanos};
use serde::Deserialize;

use crate::child;

/// The largest range of cyclictest's histogram with `-N`.
pub(crate) const CYCLICTEST_RANGE: Nanos = Nanos::from_millis(1);

#[derive(Debug, Deserialize)]
struct Document {
    #[serde(rename = "rt_test_version:")]
    version: String,
    thread: BTreeMap<String, Thread>,
}

#[derive(Debug, Deserialize)]
struct Thread {
    #[serde(default)]
    histogram: BTreeMap<String, u64>,
    #[serde(default)]
    cycles: u64,
    #[serde(default)]
    max: f64,
    #[serde(default)]
    duration: f64,
}

/// The parameters of a cyclictest run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wakeups {
    /// The measured CPU.
    pub(crate) cpu: CpuId,
    /// The CPU of its main thread.
    pub(crate) housekeeping: CpuId,
    /// FIFO priority.
    pub(crate) priority: u8,
    /// Period.
    pub(crate) interval: Nanos,
    /// Duration in seconds.
    pub(crate) seconds: u64,
    /// Record nanoseconds up to [`CYCLICTEST_RANGE`] instead of microseconds up to 400, the usual
    /// range.
    pub(crate) fine: bool,
}

/// The result of a cyclictest run.
#[derive(Debug)]
pub(crate) struct Cyclictest {
    /// Number of measured wakeups.
    pub(crate) cycles: u64,
    /// Number of samples per latency, in µs, or ns if `fine`; without samples beyond the range.
    pub(crate) histogram: BTreeMap<u64, u64>,
    /// The exact maximum, in the same unit.
    pub(crate) max: u64,
    /// CPU time of the process.
    pub(crate) cpu_time: Nanos,
    /// Version of rt-tests as printed (2.40 is version 2.4).
    pub(crate) version: String,
}

impl Cyclictest {
    /// Returns the number of missed periods, which cyclictest skips and does not count.
    pub(crate) fn missed(&self, asked: &Wakeups) -> u64 {
        (asked.seconds * Nanos::SECOND.0 / asked.interval.0).saturating_sub(self.cycles)
    }

    /// Returns the smallest latency that at least the fraction `quantile` of the cycles does not
    /// exceed, or the maximum if it is beyond the histogram. Returns `None` without cycles.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<u64> {
        let recorded: u64 = self.histogram.values().sum();
        // The file is written before the thread ends, so the sum can be larger than `cycles`.
        let cycles = self.cycles.max(recorded);
        let rank = ((quantile * cycles as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.histogram.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        (cycles > 0).then(|| found.map_or(self.max, |(value, _)| *value))
    }
}

/// The result of an oslat run.
#[derive(Debug)]
pub(crate) struct Oslat {
    /// Turns of its loop.
    pub(crate) turns: u64,
    /// Length of the measurement.
    pub(crate) duration: Nanos,
}

fn read(path: &Path) -> Result<(String, Thread)> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not a result of rt-tests", path.display()))
}

fn parse(text: &str) -> Result<(String, Thread)> {
    let document: Document = serde_json::from_str(text)?;
    let thread = document.thread.into_values().next();
    Ok((document.version, thread.context("no thread is listed")?))
}

/// Converts keys such as `1` or `1.500` to integers.
fn whole(histogram: BTreeMap<String, u64>) -> Result<BTreeMap<u64, u64>> {
    histogram
        .into_iter()
        .map(|(key, count)| {
            let value: f64 = key
                .parse()
                .with_context(|| format!("the bucket `{key}` is not a number"))?;
            Ok((value as u64, count))
        })
        .collect()
}

/// Runs cyclictest, prefixed with the command `wrapper` (for example valgrind). `--default-system`
/// keeps it from opening `/dev/cpu_dma_latency`, which would change the machine only for its own runs.
///
/// # Errors
/// If cyclictest is missing, fails or writes unexpected output.
pub(crate) fn cyclictest(wrapper: &[String], asked: &Wakeups) -> Result<Cyclictest> {
    let directory = tempfile::tempdir().context("making a temporary directory")?;
    let file = directory.path().join("cyclictest.json");
    let words = wrapper.iter().cloned().chain(arguments(asked, &file));
    let words: Vec<String> = words.collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let limit = Duration::from_secs(asked.seconds * 3 + 30);
    let ended = child::run(command, limit, |_, _| Ok(()))?;
    check_affinity(&ended.errors)?;
    let (version, thread) = read(&file)?;
    Ok(Cyclictest {
        cycles: thread.cycles,
        histogram: whole(thread.histogram)?,
        max: thread.max as u64,
        cpu_time: ended.cpu_time,
        version,
    })
}

/// Fails if rt-tests warned that they could not pin to the CPU; they then measure another one.
fn check_affinity(errors: &str) -> Result<()> {
    match errors.lines().find(|line| line.contains("affinity")) {
        Some(line) => bail!("the program ran on another CPU: {line}"),
        None => Ok(()),
    }
}

fn arguments(asked: &Wakeups, file: &Path) -> Vec<String> {
    let range = if asked.fine {
        vec!["-N".to_owned(), format!("-h{}", CYCLICTEST_RANGE.0)]
    } else {
        vec!["-h400".to_owned()]
    };
    [
        "cyclictest".to_owned(),
        "-q".to_owned(),
        "-m".to_owned(),
        "--default-system".to_owned(),
        "-t1".to_owned(),
        format!("-a{}", asked.cpu),
        format!("--mainaffinity={}", asked.housekeeping),
        format!("-p{}", asked.priority),
        format!("-i{}", asked.interval.0 / 1000),
        format!("-D{}", asked.seconds),
        "--histfile=/dev/null".to_owned(),
        format!("--json={}", file.display()),
    ]
    .into_iter()
    .chain(range)
    .collect()
}

/// Runs oslat on `cpu` for `seconds`, its main thread on `housekeeping`.
///
/// # Errors
/// As for [`cyclictest`].
pub(crate) fn oslat(cpu: CpuId, housekeeping: CpuId, seconds: u64) -> Result<Oslat> {
    let directory = tempfile::tempdir().context("making a temporary directory")?;
    let file = directory.path().join("oslat.json");
    let mut command = Command::new("oslat");
    command
        .arg(format!("--cpu-list={cpu}"))
        .arg(format!("--cpu-main-thread={housekeeping}"))
        .arg(format!("--duration={seconds}"))
        .arg(format!("--json={}", file.display()));
    child::run(
        command,
        Duration::from_secs(seconds * 3 + 30),
        |_, _| Ok(()),
    )?;
    let (_, thread) = read(&file)?;
    Ok(Oslat {
        turns: thread.histogram.values().sum(),
        duration: Nanos((thread.duration * 1e9) as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLICTEST: &str = r#"{
        "file_version": 1, "cmdline:": "cyclictest -q", "rt_test_version:": "2.40",
        "return_code": 0, "num_threads": 1, "resolution_in_ns": 1,
        "thread": { "0": { "histogram": { "5": 10, "40": 80, "9": 5 },
            "cycles": 100, "min": 5, "max": 12345, "avg": 33.75, "cpu": 1, "node": 0 } } }"#;

    fn cyclictest_of(text: &str) -> Cyclictest {
        let (version, thread) = parse(text).expect("as rt-tests writes it");
        Cyclictest {
            cycles: thread.cycles,
            histogram: whole(thread.histogram).expect("numbers"),
            max: thread.max as u64,
            cpu_time: Nanos::ZERO,
            version,
        }
    }

    #[test]
    fn parses_the_output_of_cyclictest() {
        let read = cyclictest_of(CYCLICTEST);
        assert_eq!(read.version, "2.40");
        // 10 at 5, 5 at 9, 80 at 40 and five beyond the range.
        assert_eq!(read.quantile(0.1), Some(5));
        assert_eq!(read.quantile(0.15), Some(9));
        assert_eq!(read.quantile(0.5), Some(40));
        assert_eq!(read.quantile(0.95), Some(40));
        assert_eq!(read.quantile(0.96), Some(12345));
    }

    #[test]
    fn counts_missed_periods_of_cyclictest() {
        let asked = Wakeups {
            cpu: CpuId(1),
            housekeeping: CpuId(0),
            priority: 80,
            interval: Nanos::from_millis(10),
            seconds: 2,
            fine: true,
        };
        assert_eq!(cyclictest_of(CYCLICTEST).missed(&asked), 100);
        let words = arguments(&asked, Path::new("file")).join(" ");
        assert!(
            words.contains("-N -h1000000") && words.contains("-i10000 -D2"),
            "{words}"
        );
    }

    #[test]
    fn rejects_a_run_on_another_cpu() {
        let warning = "WARN: Could not set CPU affinity to CPU #1\n";
        assert!(check_affinity(warning).is_err());
        assert!(check_affinity("WARN: not setting cpu_dma_latency from cyclictest\n").is_ok());
    }

    #[test]
    fn an_empty_histogram_has_no_quantile_and_invalid_json_is_an_error() {
        let empty = CYCLICTEST
            .replace(r#""5": 10, "40": 80, "9": 5"#, "")
            .replace(r#""cycles": 100"#, r#""cycles": 0"#);
        assert_eq!(cyclictest_of(&empty).quantile(0.5), None);
        // cyclictest writes this after a run without a cycle.
        assert!(parse(&CYCLICTEST.replace("33.75", "-nan")).is_err());
        assert!(parse(r#"{"rt_test_version:": "2.40", "thread": {}}"#).is_err());
    }
}
