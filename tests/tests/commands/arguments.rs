// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invalid input: a documented exit code, an error with a fix, no panic, and no standard output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use rampart_tests::limited::{Limited as _, finished};
use rampart_tests::programs::{assert_refused, directory, exit_code, rampart, stderr, stdout};

fn refused(arguments: &[&str], code: i32, named: &str) {
    let state = tempfile::tempdir().expect("a directory");
    let output = rampart(state.path(), arguments)
        .current_dir(state.path())
        .finish()
        .expect("rampart starts");
    check(&output, code, named);
    let left: Vec<_> = std::fs::read_dir(state.path())
        .expect("directory")
        .flatten()
        .collect();
    assert!(left.is_empty(), "{arguments:?} left {left:?}");
}

fn check(output: &Output, code: i32, named: &str) {
    assert_refused(output, code, &[named]);
    assert!(!stderr(output).contains("panicked at"), "{output:?}");
}

#[test]
fn bad_arguments_exit_with_2_and_report_their_location() {
    for (arguments, named) in [
        (vec![], "Usage"),
        (vec!["evaluat"], "evaluate"),
        (vec!["evaluate", "--for", "5"], "unit"),
        (vec!["evaluate", "--for", "-5s"], "unexpected"),
        (vec!["evaluate", "--for", "1ms"], "too short"),
        (vec!["evaluate", "--deadline", "fast"], "length of time"),
        (vec!["evaluate", "--domains", "moon"], "unknown domain"),
        (
            vec!["evaluate", "--domains", "hots"],
            "did you mean `host`?",
        ),
        (vec!["evaluate", "--on", "root@board"], "`ssh:root@board`?"),
        (vec!["measure", "wakup"], "did you mean `wakeup`?"),
        (
            vec!["measure", "wakeup", "--policy", "SCHED_FIFO"],
            "priority",
        ),
        (vec!["knobs", "enabled"], "no knob"),
        (vec!["knobs", "irq"], "interrupt-thread-priority or"),
        (vec!["shield"], "CPUS"),
        (vec!["shield", "1", "--cpus", "1"], "cannot be used"),
        (vec!["status", "--serve", "9101"], "localhost:19477"),
        (vec!["evaluate", "--ablate"], "--plan"),
        (vec!["evaluate", "--before-after"], "--plan"),
        (vec!["evaluate", "--plan", "/nowhere"], "/nowhere"),
        (vec!["evaluate", "--plan", "x", "--cpus", "0"], "--cpus"),
        (
            vec!["evaluate", "--plan", "x", "--plan-text", "[machine"],
            "x:1",
        ),
        (vec!["evaluate", "--loads", "gpu"], "no load"),
        (vec!["evaluate", "--loads", "cpu@moon"], "no location"),
        (
            vec!["evaluate", "--loads", "idle@same"],
            "idle has no location",
        ),
        (vec!["evaluate", "--meters", "ruler"], "unknown meter"),
        (vec!["evaluate", "--cpus", "9999"], "cannot use CPUs"),
        (vec!["evaluate", "--cpus", "3-1"], "backwards"),
        (vec!["evaluate", "--cpus", ""], "cannot use CPUs"),
        (vec!["evaluate", "--policy", "fifo:100"], "between 1 and 99"),
        (
            vec!["evaluate", "--policy", "deadline:2ms/1ms/1ms"],
            "does not hold",
        ),
        (vec!["evaluate", "--interval", "1us"], "interval"),
        (vec!["evaluate", "--interval", "0s"], "interval"),
        (
            vec!["evaluate", "--meters", "loop", "--work", "2ms"],
            "does not fit",
        ),
        (vec!["evaluate", "--seed", "x"], "invalid"),
        (vec!["evaluate", "extra"], "unexpected"),
        (vec!["check", "--cpus", "9999"], "cannot use CPUs"),
        (vec!["check", "--machine", "no-such"], "no recorded machine"),
        (vec!["knobs", "no-such-knob"], "no knob"),
        (vec!["knobs", "--json", "--markdown"], "cannot be used"),
        (vec!["measure"], "METER"),
        (vec!["measure", "ruler"], "unknown meter"),
        (vec!["measure", "wakeup", "--interval", "19us"], "20 µs"),
        (
            vec!["measure", "wakeup", "--cpus", "0", "--interval", "1ms,2ms"],
            "one for each",
        ),
        (vec!["measure", "wakeup", "--for", "0s"], "duration is zero"),
        (vec!["measure", "wakeup", "--cpus", ""], "no CPU to measure"),
        (
            vec!["measure", "wakeup", "--worst", "100000"],
            "10000 or fewer",
        ),
        (vec!["measure", "fwq", "--work", "1ns"], "calibrated"),
        (
            vec!["measure", "wakeup", "--for", "99999999999999h"],
            "too long",
        ),
        (vec!["report"], "RESULTS"),
        (vec!["report", ".", "--format", "pdf"], "pdf"),
        (vec!["schema", "poem"], "poem"),
        (vec!["completions", "dos"], "dos"),
    ] {
        refused(&arguments, 2, named);
    }
}

/// A plan that fits no machine.
const ABSENT_CPU: &str = "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"9999\"\n";

#[test]
fn a_missing_precondition_exits_with_4_and_prints_the_fix() {
    for (arguments, named) in [
        (
            vec!["measure", "wakeup", "--cpus", "9999", "--for", "1s"],
            "9999",
        ),
        (vec!["evaluate", "--domains", "cell", "--for", "1m"], "cell"),
        (
            vec!["evaluate", "--domains", "container:docker", "--for", "1m"],
            "docker",
        ),
        (
            vec!["evaluate", "--plan", "x", "--plan-text", ABSENT_CPU],
            "9999",
        ),
    ] {
        refused(&arguments, 4, named);
    }
    let state = tempfile::tempdir().expect("a directory");
    let output = rampart(state.path(), &["measure", "wakeup"])
        .env("RAMPART_METER", "/nowhere/rampart-meter")
        .finish()
        .expect("rampart starts");
    check(&output, 4, "RAMPART_METER");
}

#[test]
fn read_and_write_errors_exit_with_1() {
    refused(&["report", "/nowhere"], 1, "/nowhere");
    refused(&["evaluate", "--out", "/proc/rampart"], 1, "--out");
    let directory = tempfile::tempdir().expect("a directory");
    for (content, named) in [
        ("", "not an evaluation"),
        ("{", "not an evaluation"),
        ("{}", "schema_version"),
        (r#"{"schema_version": 999}"#, "newer rampart"),
        (r#"{"schema_version": 1}"#, "missing field"),
        (r#"{"schema_version": "one"}"#, "not an evaluation"),
    ] {
        let document = directory.path().join("evaluation.json");
        std::fs::write(&document, content).expect("write");
        let path = directory.path().to_str().expect("UTF-8").to_owned();
        refused(&["report", &path], 1, named);
    }
}

#[test]
fn an_evaluation_is_never_overwritten() {
    let directory = tempfile::tempdir().expect("a directory");
    let document = directory.path().join("evaluation.json");
    std::fs::write(&document, "precious").expect("write");
    let path = directory.path().to_str().expect("UTF-8").to_owned();
    refused(
        &[
            "evaluate",
            "--out",
            &path,
            "--domains",
            "host",
            "--loads",
            "idle",
        ],
        2,
        "not overwritten",
    );
    assert_eq!(
        std::fs::read_to_string(&document).expect("read"),
        "precious"
    );
}

#[test]
fn the_meter_refuses_invalid_settings() {
    let good = r#"{"meter":"wakeup","cpus":"0","housekeeping":"","policy":"other","placed_by":"itself","duration":1000000,"warm_up":0,"interval":1000000,"aligned":false,"threshold":null,"work":100000,"deadline":null,"worst":5,"batch":1000000000,"lock_memory":false}"#;
    let request =
        |settings: &str| format!(r#"{{"prepare":{{"protocol":1,"settings":{settings}}}}}"#);
    let replaced = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        request(&good.replace(from, to))
    };
    for line in [
        "not json".to_owned(),
        "{}".to_owned(),
        r#"{"go":{}}"#.to_owned(),
        replaced(r#""wakeup""#, r#""ruler""#),
        replaced(r#""cpus":"0""#, r#""cpus":"""#),
        replaced(r#""cpus":"0""#, r#""cpus":"a-b""#),
        replaced(r#""other""#, r#""fifo:0""#),
        replaced(r#""interval":1000000"#, r#""interval":1"#),
        replaced(r#""interval":1000000"#, r#""interval":-1"#),
        replaced(r#""duration":1000000"#, r#""duration":0"#),
        replaced(r#""batch":1000000000"#, r#""batch":1"#),
        replaced(r#""worst":5"#, r#""worst":5,"extra":1"#),
        replaced(r#""worst":5"#, r#""worst":4294967295"#),
    ] {
        let output = meter(&line);
        assert_eq!(exit_code(&output), 2, "{line}: {output:?}");
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.contains("bad-plan"), "{line}: {answer}");
        assert!(!stderr(&output).contains("panicked"), "{line}");
    }
    // A program of another version is missing, and its settings may be valid.
    let output = meter(&request(good).replace(r#""protocol":1"#, r#""protocol":99"#));
    assert_eq!(exit_code(&output), 4, "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("other-protocol"));
}

fn meter(line: &str) -> Output {
    let mut child = Command::new(directory().join("rampart-meter"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rampart-meter starts");
    // The meter may end before it has read everything.
    let _ = child
        .stdin
        .take()
        .map(|mut stdin| writeln!(stdin, "{line}"));
    finished(child)
}

#[test]
fn help_man_pages_and_completions_come_from_one_definition() {
    let state = tempfile::tempdir().expect("a directory");
    let help = stdout(
        &rampart(state.path(), &["evaluate", "--help"])
            .finish()
            .expect("help"),
        0,
    );
    let pages = state.path().join("man");
    let path = pages.to_str().expect("UTF-8");
    let _ = stdout(
        &rampart(state.path(), &["man", path]).finish().expect("man"),
        0,
    );
    let page =
        std::fs::read_to_string(pages.join("rampart-evaluate.1")).expect("rampart-evaluate.1");
    let script = stdout(
        &rampart(state.path(), &["completions", "bash"])
            .finish()
            .expect("completions"),
        0,
    );
    for option in ["--for", "--deadline", "--domains", "--loads", "--out"] {
        assert!(help.contains(option), "{option}");
        assert!(page.contains(&option.replace('-', "\\-")), "{option}");
        assert!(script.contains(option), "{option}");
    }
    assert!(help.contains("Examples:"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let state = tempfile::tempdir().expect("a directory");
    let mut child = rampart(state.path(), &["schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rampart starts");
    drop(child.stdout.take());
    let output = finished(child);
    assert_eq!((exit_code(&output), &*stderr(&output)), (0, ""));
}
