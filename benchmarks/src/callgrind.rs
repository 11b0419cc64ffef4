// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts user-space instructions with valgrind's callgrind.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// The counts of one run under callgrind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Instructions of all threads.
    all: u64,
    /// Instructions of the measuring thread.
    measuring: u64,
    /// Wakeups of the run.
    wakeups: u64,
}

/// Runs `program` under callgrind. `program` receives the command prefix and returns its number of
/// wakeups.
///
/// # Errors
/// If the program fails or callgrind writes no counts.
pub(crate) fn counted(program: impl FnOnce(&[String]) -> Result<u64>) -> Result<Counted> {
    let directory = tempfile::tempdir().context("making a temporary directory")?;
    let wrapper = [
        "valgrind".to_owned(),
        "--quiet".to_owned(),
        "--tool=callgrind".to_owned(),
        "--separate-threads=yes".to_owned(),
        format!("--callgrind-out-file={}/{OUT}", directory.path().display()),
    ];
    let wakeups = program(&wrapper)?;
    let (all, measuring) = instructions(directory.path())?;
    Ok(Counted {
        all,
        measuring,
        wakeups,
    })
}

/// Name of callgrind's files; callgrind appends `-01` for the first thread and so on.
const OUT: &str = "callgrind";

/// Returns the instructions of all threads and those of the measuring thread: the busiest thread
/// except the first, which only starts it.
fn instructions(directory: &Path) -> Result<(u64, u64)> {
    let (mut all, mut measuring) = (0, 0);
    for entry in std::fs::read_dir(directory).context("looking for callgrind's files")? {
        let path = entry.context("looking for callgrind's files")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(thread) = name.strip_prefix(&format!("{OUT}-")) else {
            continue;
        };
        let first = thread.parse() == Ok(1);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let count: u64 = text
            .lines()
            .filter_map(|line| line.strip_prefix("totals:"))
            .find_map(|count| count.trim().parse().ok())
            .with_context(|| format!("{} has no line `totals:`", path.display()))?;
        all += count;
        if !first {
            measuring = measuring.max(count);
        }
    }
    if measuring == 0 {
        bail!("callgrind found no measuring thread (expected: at least two threads)");
    }
    Ok((all, measuring))
}

/// Instructions per wakeup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slope {
    /// Of all threads.
    pub(crate) all: f64,
    /// Of the measuring thread.
    pub(crate) measuring: f64,
}

impl Slope {
    /// Computes the instructions per wakeup from a short run and a longer one.
    ///
    /// # Errors
    /// If the longer run has no more wakeups than the short one.
    pub(crate) fn between(short: Counted, long: Counted) -> Result<Self> {
        let wakeups = long.wakeups.saturating_sub(short.wakeups);
        if wakeups == 0 {
            bail!(
                "the longer run had no more wakeups than the short one; the machine may be overloaded"
            );
        }
        let per = |long: u64, short: u64| (long as f64 - short as f64) / wakeups as f64;
        Ok(Self {
            all: per(long.all, short.all),
            measuring: per(long.measuring, short.measuring),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_excludes_start_up() {
        let run = |seconds: u64| Counted {
            all: 1_000_000 + 300 * 5000 * seconds,
            measuring: 2_000 + 100 * 5000 * seconds,
            wakeups: 77 + 5000 * seconds,
        };
        let slope = Slope::between(run(1), run(3)).expect("a slope");
        assert_eq!((slope.all, slope.measuring), (300.0, 100.0));
        assert!(Slope::between(run(1), run(1)).is_err());
    }

    #[test]
    fn parses_the_counts_of_callgrind() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).expect("a file");
        };
        write("callgrind", "");
        write("callgrind-01", "events: Ir\ntotals: 900\n");
        assert!(instructions(directory.path()).is_err());
        write("callgrind-02", "events: Ir\ntotals: 700\n");
        write("callgrind-03", "events: Ir\ntotals: 5\n");
        let counts = instructions(directory.path()).expect("counts");
        assert_eq!(counts, (1605, 700));
        write("callgrind-02", "events: Ir\n");
        assert!(instructions(directory.path()).is_err());
    }
}
