// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that run in a simulated machine and report cases. Each case is a test here, so that the test runner lists it,
//! and a person runs one by its name.
//!
//! A program prints a line for each case, and one at its end:
//!
//! ```text
//! case NAME passed|failed|left-out: what was seen
//! cases end
//! ```
//!
//! A case that is reported more than once passes if all of its lines have `passed`. Lines that begin otherwise are output
//! for people.
//!
//! The machine runs once in a run of the tests: the first case starts it and writes the output to a file, and the others
//! read this file. Under `cargo nextest`, each test is a process, and `NEXTEST_RUN_ID` is the same in all of them. Under
//! `cargo test` the tests of a program share its memory.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use crate::programs::left_out;

/// The last line of a program.
pub const END: &str = "cases end";
/// Set by `cargo nextest`.
const RUN: &str = "NEXTEST_RUN_ID";
/// Files of earlier runs are removed after this time.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Lines of the output that a failed test shows.
const SHOWN: usize = 30;

/// A program with its cases.
#[derive(Debug, Clone, Copy)]
pub struct GuestProgram {
    /// A name that no other program has; a file is named after it.
    pub name: &'static str,
    /// All cases that the program reports.
    pub cases: &'static [&'static str],
    /// Runs the program in its machine and returns its output; `None` if the machine cannot run here, which the function
    /// has reported with its reason. A panic fails every case that is not in its message.
    pub run: fn() -> Option<String>,
}

/// Makes a module with a test for each case of a program, and one that the program reports exactly these cases and ends.
/// The name is written as that of a test, because documents name it.
///
/// ```ignore
/// guest_cases! {
///     /// Hostile threads on a CPU with SMAP.
///     fn hostile_threads_do_no_harm() = run_hostile_threads;
///     a_taken_cpu_is_not_taken_twice,
///     no_flag_masks_interrupts,
/// }
/// ```
///
/// `#[ignore = "REASON"]` before `fn` is that of every test.
#[macro_export]
macro_rules! guest_cases {
    ($(#[doc = $text:literal])* $(#[ignore = $reason:literal])? mod $module:ident = $run:path; $($case:ident),+ $(,)?) => {
        $crate::guest_cases! {
            $(#[doc = $text])* $(#[ignore = $reason])? fn $module() = $run; $($case),+
        }
    };
    ($(#[doc = $text:literal])* $(#[ignore = $reason:literal])? fn $module:ident() = $run:path; $($case:ident),+ $(,)?) => {
        $(#[doc = $text])*
        mod $module {
            use super::*;

            const PROGRAM: $crate::guest_cases::GuestProgram = $crate::guest_cases::GuestProgram {
                name: module_path!(),
                cases: &[$(stringify!($case)),+],
                run: $run,
            };

            $crate::guest_cases!(@tests [$($reason)?] $($case),+);
        }
    };
    (@tests [] $($case:ident),+) => {
        $(
            #[test]
            fn $case() {
                PROGRAM.assert_case(stringify!($case));
            }
        )+

        #[test]
        fn reports_exactly_these_cases_and_ends() {
            PROGRAM.assert_complete();
        }
    };
    (@tests [$reason:literal] $($case:ident),+) => {
        $(
            #[test]
            #[ignore = $reason]
            fn $case() {
                PROGRAM.assert_case(stringify!($case));
            }
        )+

        #[test]
        #[ignore = $reason]
        fn reports_exactly_these_cases_and_ends() {
            PROGRAM.assert_complete();
        }
    };
}

impl GuestProgram {
    /// Asserts that the program reported this case as passed. Reports a case that was left out.
    ///
    /// # Panics
    /// With what was seen, and the lines before it, if the case failed or was not reported.
    pub fn assert_case(&self, case: &str) {
        match self.outcome() {
            RunOutcome::LeftOut => (),
            RunOutcome::Ran { output, failure } => {
                if let Err(text) = case_result(&output, case, failure.as_deref()) {
                    panic!("{}: {text}", self.name);
                }
            }
        }
    }

    /// Asserts that the program reported all of its cases and no other, and that it ended.
    ///
    /// # Panics
    /// With the difference, if it did not.
    pub fn assert_complete(&self) {
        match self.outcome() {
            RunOutcome::LeftOut => (),
            RunOutcome::Ran { output, failure } => {
                if let Some(failure) = failure {
                    panic!("{}: {failure}", self.name);
                }
                if let Err(text) = check_complete(&output, self.cases) {
                    panic!("{}: {text}\n{output}", self.name);
                }
            }
        }
    }

    /// Returns the outcome of the program's only run.
    fn outcome(&self) -> RunOutcome {
        if let Some(run) = std::env::var_os(RUN) {
            let directory = std::env::temp_dir().join("rampart-guest-cases");
            remove_old(&directory);
            let outcome = shared_outcome(&directory.join(run), self);
            return outcome.expect("the files of a program's run");
        }
        static OUTCOMES: Mutex<BTreeMap<&str, Arc<OnceLock<RunOutcome>>>> =
            Mutex::new(BTreeMap::new());
        let outcome = {
            let mut outcomes = OUTCOMES.lock().expect("no test panics with this lock");
            Arc::clone(outcomes.entry(self.name).or_default())
        };
        outcome.get_or_init(|| run(self.run)).clone()
    }
}

/// Returns the line of a case that the test itself checks, for the output of its program.
#[must_use]
pub fn case_line(case: &str, passed: bool, seen: &str) -> String {
    let outcome = if passed { "passed" } else { "failed" };
    format!("case {case} {outcome}: {}\n", seen.replace('\n', " | "))
}

/// The outcome of a program's run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RunOutcome {
    /// The machine cannot run here.
    LeftOut,
    /// The output, and the panic of the function that ran the program.
    Ran {
        output: String,
        failure: Option<String>,
    },
}

fn run(run: fn() -> Option<String>) -> RunOutcome {
    match catch_unwind(run) {
        Ok(None) => RunOutcome::LeftOut,
        Ok(Some(output)) => RunOutcome::Ran {
            output,
            failure: None,
        },
        // It has the output so far.
        Err(panic) => {
            let text = message(&*panic);
            RunOutcome::Ran {
                output: text.clone(),
                failure: Some(text),
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// Runs the program if no process did so yet, and returns the outcome that the directory has.
fn shared_outcome(directory: &Path, program: &GuestProgram) -> io::Result<RunOutcome> {
    fs::create_dir_all(directory)?;
    let file = |end: &str| -> PathBuf {
        let name = program.name.replace("::", ".");
        directory.join(format!("{name}.{end}"))
    };
    let lock = File::create(file("lock"))?;
    lock.lock()?;
    let outcome = file("outcome");
    if !outcome.exists() {
        // Written first: another run after one that was killed would last as long, and once for each case.
        let began = file("began");
        let ran = if began.exists() {
            let text = "the process that ran the program was ended, for example at its time limit";
            RunOutcome::Ran {
                output: String::new(),
                failure: Some(text.to_owned()),
            }
        } else {
            File::create(&began)?;
            run(program.run)
        };
        let written = file("new");
        fs::write(&written, to_text(&ran))?;
        fs::rename(&written, &outcome)?;
    }
    let text = fs::read_to_string(&outcome)?;
    from_text(&text).ok_or_else(|| io::Error::other(format!("{}: not an outcome", text)))
}

fn to_text(outcome: &RunOutcome) -> String {
    match outcome {
        RunOutcome::LeftOut => "left out\n".to_owned(),
        RunOutcome::Ran {
            output,
            failure: None,
        } => format!("ran\n{output}"),
        // The output is in the message.
        RunOutcome::Ran {
            failure: Some(text),
            ..
        } => format!("failed\n{text}"),
    }
}

fn from_text(text: &str) -> Option<RunOutcome> {
    let (head, text) = text.split_once('\n')?;
    let ran = |failure| RunOutcome::Ran {
        output: text.to_owned(),
        failure,
    };
    match head {
        "left out" => Some(RunOutcome::LeftOut),
        "ran" => Some(ran(None)),
        "failed" => Some(ran(Some(text.to_owned()))),
        _ => None,
    }
}

/// Removes the files of earlier runs.
fn remove_old(directory: &Path) {
    let oldest = SystemTime::now() - KEPT;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        if written.is_ok_and(|written| written < oldest) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The result of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseResult {
    Passed,
    Failed,
    LeftOut,
}

/// Parses `case NAME RESULT: what was seen`.
fn parse_line(line: &str) -> Option<(&str, CaseResult, &str)> {
    let (name, rest) = line.strip_prefix("case ")?.split_once(' ')?;
    let (result, seen) = rest.split_once(':')?;
    let result = match result {
        "passed" => CaseResult::Passed,
        "failed" => CaseResult::Failed,
        "left-out" => CaseResult::LeftOut,
        _ => return None,
    };
    Some((name, result, seen.trim()))
}

/// Returns the lines before and with this one.
fn before(lines: &[&str], at: usize) -> String {
    lines[at.saturating_sub(SHOWN - 1)..=at].join("\n")
}

/// Returns why a case has not passed.
fn case_result(output: &str, case: &str, failure: Option<&str>) -> Result<(), String> {
    let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
    let mut is_reported = false;
    for (at, line) in lines.iter().enumerate() {
        let Some((name, result, seen)) = parse_line(line) else {
            continue;
        };
        if name != case {
            continue;
        }
        is_reported = true;
        match result {
            CaseResult::Passed => (),
            CaseResult::Failed => {
                return Err(format!("{case} failed: {seen}\n{}", before(&lines, at)));
            }
            CaseResult::LeftOut => left_out(&format!("{case}: {seen}")),
        }
    }
    if is_reported {
        return Ok(());
    }
    let end = lines.len().checked_sub(1).map(|last| before(&lines, last));
    let why = failure.and_then(|text| text.lines().next());
    Err(format!(
        "{case} was not reported: {}\n{}",
        why.unwrap_or("the program ended"),
        end.unwrap_or_default()
    ))
}

/// Returns the difference between the reported and the expected cases.
fn check_complete(output: &str, cases: &[&str]) -> Result<(), String> {
    let reported: BTreeSet<&str> = output
        .lines()
        .filter_map(|line| parse_line(line.trim_end()))
        .map(|(name, ..)| name)
        .collect();
    let expected: BTreeSet<&str> = cases.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, is_reported) in expected
        .difference(&reported)
        .map(|name| (name, false))
        .chain(reported.difference(&expected).map(|name| (name, true)))
    {
        let text = if is_reported {
            "no test"
        } else {
            "not reported"
        };
        wrong.push(format!("{name}: {text}"));
    }
    // A line that begins so is one of a case.
    for line in output.lines().map(str::trim_end) {
        if line.starts_with("case ") && parse_line(line).is_none() {
            wrong.push(format!("{line:?} has no result"));
        }
    }
    if !output.lines().any(|line| line.trim_end() == END) {
        wrong.push(format!("no {END:?}"));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const OUTPUT: &str = "booted\n\
        case one passed: 3 of 3\r\n\
        case two failed: 2, not 3\n\
        case three left-out: no SMAP\n\
        case one passed: again\n\
        case two passed: 3\n\
        cases end\n";

    #[test]
    fn a_case_passes_if_all_of_its_lines_have_passed() {
        assert_eq!(case_result(OUTPUT, "one", None), Ok(()));
        let failed = case_result(OUTPUT, "two", None).expect_err("a failed line");
        assert!(failed.starts_with("two failed: 2, not 3\n"), "{failed}");
        assert!(failed.contains("case one passed: 3 of 3\n"), "{failed}");
        assert_eq!(case_result(OUTPUT, "three", None), Ok(()));
    }

    #[test]
    fn a_case_that_is_not_reported_fails_with_the_reason() {
        let ended = case_result(OUTPUT, "four", None).expect_err("no line");
        assert!(ended.contains("four was not reported: the program ended"));
        assert!(ended.contains(END), "{ended}");
        let lost = case_result("case one passed: \n", "four", Some("silent\nall"));
        let lost = lost.expect_err("no line");
        assert!(lost.contains("four was not reported: silent\n"), "{lost}");
        // The beginning of a name is another case.
        assert!(case_result(OUTPUT, "on", None).is_err());
    }

    #[test]
    fn the_reported_cases_are_those_with_a_test() {
        let all = ["one", "two", "three"];
        assert_eq!(check_complete(OUTPUT, &all), Ok(()));
        let differs = |cases: &[&str]| check_complete(OUTPUT, cases).expect_err("differs");
        assert_eq!(differs(&["one", "two"]), "three: no test");
        assert_eq!(
            differs(&["one", "two", "three", "four"]),
            "four: not reported"
        );
        let cut = OUTPUT.trim_end_matches("cases end\n");
        let cut = check_complete(cut, &all).expect_err("no end");
        assert_eq!(cut, "no \"cases end\"");
        let unknown = format!("{OUTPUT}case one ok\n");
        let unknown = check_complete(&unknown, &all).expect_err("no result");
        assert_eq!(unknown, "\"case one ok\" has no result");
    }

    fn program(name: &'static str, run: fn() -> Option<String>) -> GuestProgram {
        GuestProgram {
            name,
            cases: &["one"],
            run,
        }
    }

    #[test]
    fn processes_of_a_run_share_one_execution() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().expect("a directory");
        let program = program("crate::shared", || {
            RUNS.fetch_add(1, Ordering::Relaxed);
            Some(OUTPUT.to_owned())
        });
        let ran = RunOutcome::Ran {
            output: OUTPUT.to_owned(),
            failure: None,
        };
        std::thread::scope(|scope| {
            let one = || shared_outcome(directory.path(), &program).expect("files");
            let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            for outcome in all {
                assert_eq!(outcome.join().expect("an outcome"), ran);
            }
        });
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_panic_keeps_the_cases_of_its_message() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = program("lost", || panic!("silent for 200 s\n{OUTPUT}"));
        for _ in 0..2 {
            let outcome = shared_outcome(directory.path(), &program).expect("files");
            let RunOutcome::Ran { output, failure } = outcome else {
                panic!("left out");
            };
            assert_eq!(case_result(&output, "one", failure.as_deref()), Ok(()));
            assert!(failure.expect("a panic").starts_with("silent for 200 s"));
        }
    }

    #[test]
    fn a_program_whose_process_was_killed_does_not_run_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = program("killed", || unreachable!("it began before"));
        File::create(directory.path().join("killed.began")).expect("a file");
        let outcome = shared_outcome(directory.path(), &program).expect("files");
        let RunOutcome::Ran { failure, .. } = outcome else {
            panic!("left out");
        };
        assert!(failure.expect("a reason").contains("was ended"));
    }

    #[test]
    fn a_program_that_cannot_run_here_is_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = program("left", || None);
        for _ in 0..2 {
            let outcome = shared_outcome(directory.path(), &program).expect("files");
            assert_eq!(outcome, RunOutcome::LeftOut);
        }
    }

    #[test]
    fn a_line_of_the_host_is_one_of_a_case() {
        let line = case_line("one", false, "first\nsecond");
        assert_eq!(line, "case one failed: first | second\n");
        assert_eq!(
            parse_line(line.trim_end()),
            Some(("one", CaseResult::Failed, "first | second"))
        );
    }

    fn succeeds() -> Option<String> {
        Some(OUTPUT.replace("failed", "passed"))
    }

    crate::guest_cases! {
        /// The macro, with a program that runs here.
        fn listed() = succeeds;
        one,
        two,
        three,
    }
}
