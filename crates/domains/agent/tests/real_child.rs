// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two sides over real pipes and sockets, with real programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError, TerminalSize};

const PATIENCE: Duration = Duration::from_secs(60);

fn far_side(input: Stdio, output: Stdio, arguments: &str) -> Child {
    let here = std::env::current_exe().expect("this program");
    let target = here.ancestors().nth(2).expect("deps is in a directory");
    Command::new(target.join("examples/far_side"))
        .args(arguments.split_whitespace())
        .stdin(input)
        .stdout(output)
        .spawn()
        .expect("the far side: cargo builds it with these tests")
}

/// An agent over a socket.
fn start(arguments: &str) -> (Agent, Child) {
    let (near, far) = UnixStream::pair().expect("sockets");
    let again = far.try_clone().expect("socket");
    let child = far_side(
        OwnedFd::from(far).into(),
        OwnedFd::from(again).into(),
        arguments,
    );
    (Agent::connect(near, PATIENCE).expect("an answer"), child)
}

fn shell(script: &str) -> AgentCommand {
    AgentCommand::new(["sh", "-c", script])
}

fn text(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).expect("text");
    text
}

fn exists(process: &str) -> bool {
    // What has ended and waits for its parent to ask has no command line.
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn says_where_it_is() {
    let (agent, _child) = start("");
    let hello = agent.hello();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    assert_eq!(hello.kernel_release, release.trim());
    assert!(!hello.cpus.is_empty());
    assert_eq!(hello.architecture, std::env::consts::ARCH);
}

#[test]
fn a_program_may_have_cpus_of_its_own() {
    let (agent, _child) = start("");
    let first = agent.hello().cpus.first().expect("a CPU");
    let mut command = AgentCommand::new(["grep", "Cpus_allowed_list", "/proc/self/status"]);
    command.cpus = Some(rampart_model::CpuSet::single(first));
    let started = agent.spawn(&command).expect("started");
    let told = text(started.stdout);
    assert_eq!(
        told.split_whitespace().last(),
        Some(first.to_string().as_str())
    );
}

#[test]
fn a_program_has_three_streams_a_status_an_environment_and_a_place() {
    let (agent, _child) = start("");
    let mut command = shell("cat; pwd; echo \"$WORD\" >&2; exit 7");
    command.env = vec![("WORD".to_owned(), "wall".to_owned())];
    command.directory = Some("/proc".to_owned());
    let mut process = agent.spawn(&command).expect("started");
    assert_eq!(
        process.wait(Duration::from_millis(50)).expect("asked"),
        None
    );
    process.stdin.write_all(b"in\n").expect("written");
    drop(process.stdin);
    assert_eq!(text(process.stdout), "in\n/proc\n");
    assert_eq!(text(process.stderr), "wall\n");
    let status = process
        .handle
        .wait(PATIENCE)
        .expect("ended")
        .expect("ended");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn what_is_not_there_is_refused_with_the_reason() {
    let (agent, _child) = start("");
    for argv in [vec!["/nowhere/program"], vec![]] {
        let error = agent.spawn(&AgentCommand::new(argv)).expect_err("refused");
        assert!(matches!(error, AgentError::NotStarted { .. }), "{error}");
    }
    // And the connection goes on.
    assert_eq!(
        text(agent.spawn(&shell("echo on")).expect("started").stdout),
        "on\n"
    );
}

#[test]
fn signals_arrive_and_no_signal_is_blocked() {
    let (agent, _child) = start("");
    // Without a shell between: some empty the mask themselves.
    let process = agent
        .spawn(&AgentCommand::new(["grep", "SigBlk", "/proc/self/status"]))
        .expect("started");
    assert_eq!(text(process.stdout).trim(), "SigBlk:\t0000000000000000");
    // As `&` in a script leaves it.
    let process = agent
        .spawn(&AgentCommand::new(["grep", "SigIgn", "/proc/self/status"]))
        .expect("started");
    let ignored = text(process.stdout);
    let ignored = ignored.trim().rsplit('\t').next().expect("a mask");
    let ignored = u64::from_str_radix(ignored, 16).expect("a mask");
    // 32 and 33 are the C library's own, which nobody may touch.
    assert_eq!(ignored & !(0b11 << 31), 0, "{ignored:#x}");

    let mut process = agent
        .spawn(&shell(
            "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done",
        ))
        .expect("started");
    let mut lines = BufReader::new(&mut process.stdout).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    process.handle.signal(2).expect("sent");
    assert_eq!(lines.next().expect("a line").expect("text"), "caught");
    let status = process
        .handle
        .wait(PATIENCE)
        .expect("ended")
        .expect("ended");
    assert_eq!(status.code(), Some(3));

    // A shell waits for what it started before it looks at its own signals.
    let process = agent.spawn(&shell("sleep 1000; exit 4")).expect("started");
    let begun = Instant::now();
    while process
        .handle
        .wait(Duration::from_millis(20))
        .expect("asked")
        .is_none()
    {
        process.handle.signal_group(2).expect("sent");
        assert!(begun.elapsed() < PATIENCE, "it goes on");
    }

    let process = agent
        .spawn(&AgentCommand::new(["sleep", "1000"]))
        .expect("started");
    process.signal(9).expect("sent");
    let status = process.wait(PATIENCE).expect("ended").expect("ended");
    assert_eq!(status.signal(), Some(9));
}

#[test]
fn much_goes_both_ways_at_once() {
    let (agent, _child) = start("");
    let process = agent.spawn(&AgentCommand::new(["cat"])).expect("started");
    let sent: Vec<u8> = (0..3_000_000u32)
        .flat_map(|i| (i * 7).to_le_bytes())
        .collect();
    let copy = sent.clone();
    let mut stdin = process.stdin;
    let writer = std::thread::spawn(move || stdin.write_all(&copy).expect("written"));
    let mut back = Vec::new();
    let mut stdout = process.stdout;
    stdout.read_to_end(&mut back).expect("read");
    writer.join().expect("writer");
    assert!(
        back == sent,
        "{} bytes of {} came back",
        back.len(),
        sent.len()
    );
}

/// A program whose output nobody takes stops, its neighbours do not, and neither side keeps more
/// than a window of it.
#[test]
fn a_slow_reader_stops_only_its_own_program() {
    let (agent, _child) = start("");
    let mut endless = agent.spawn(&AgentCommand::new(["yes"])).expect("started");
    let mut deaf = agent
        .spawn(&AgentCommand::new(["sleep", "1000"]))
        .expect("started");
    let filled = std::thread::spawn(move || {
        // Much more than pipe and window hold: waits until `sleep` is gone.
        let error = deaf
            .stdin
            .write_all(&vec![0; 4 << 20])
            .expect_err("nobody reads it");
        (error.kind(), deaf)
    });
    for number in 0..20 {
        let process = agent
            .spawn(&shell(&format!("cat; echo {number}")))
            .expect("started");
        drop(process.stdin);
        assert_eq!(text(process.stdout), format!("{number}\n"));
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("a peak");
    let kilobytes: u64 = peak
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("one");
    // Other tests run in this process too; `yes` alone makes gigabytes a second.
    assert!(kilobytes < 300_000, "{peak}");
    let mut some = vec![0; 1 << 20];
    endless.stdout.read_exact(&mut some).expect("it goes on");
    assert!(some.chunks(2).all(|pair| pair == b"y\n"));
    drop(endless);
    drop(agent);
    let (kind, deaf) = {
        // The last handle of the connection is in that thread: end its program from outside.
        let found = Command::new("pkill")
            .args(["-9", "-P", &_child.id().to_string()])
            .status();
        found.expect("pkill");
        filled.join().expect("writer")
    };
    assert_eq!(kind, std::io::ErrorKind::BrokenPipe);
    drop(deaf);
}

#[test]
fn a_dropped_process_is_killed_with_all_that_it_started() {
    let (agent, _child) = start("");
    let mut process = agent
        .spawn(&shell("sleep 1000 & echo $! $$; trap '' TERM; wait"))
        .expect("started");
    let mut line = String::new();
    BufReader::new(&mut process.stdout)
        .read_line(&mut line)
        .expect("a line");
    let ids: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(
        process.handle.id().map(|id| id.to_string()).as_ref(),
        ids.get(1)
    );
    // In the middle of its exec a process has no command line.
    eventually("both are there", || ids.iter().all(|id| exists(id)));
    drop(process);
    eventually("both are gone", || !ids.iter().any(|id| exists(id)));
}

/// Also what made itself a session of its own and lost its parent.
#[test]
fn nothing_outlives_the_connection() {
    let (agent, mut child) = start("");
    let mut process = agent
        .spawn(&shell(
            "setsid sh -c 'sleep 1000 & echo $!'; trap 'exit 0' TERM; echo $$; while :; do sleep 0.05; done",
        ))
        .expect("started");
    let mut lines = BufReader::new(&mut process.stdout).lines();
    let ids = [(); 2].map(|()| lines.next().expect("a line").expect("text"));
    // In the middle of its exec a process has no command line.
    eventually("both are there", || ids.iter().all(|id| exists(id)));
    std::mem::forget(process.handle);
    let process = (process.stdin, process.stderr);
    // As if we had been killed: no farewell, only the end of the stream.
    child.stdin.take();
    agent.power_off().expect("sent");
    assert!(child.wait().expect("ended").success());
    assert!(!ids.iter().any(|id| exists(id)), "{ids:?}");
    drop(process);
    assert!(agent.wait_lost(PATIENCE));
    assert!(matches!(
        agent.spawn(&shell("true")),
        Err(AgentError::Lost(_))
    ));
}

#[test]
fn the_end_of_the_stream_is_the_end_of_the_agent() {
    let mut child = far_side(Stdio::piped(), Stdio::piped(), "");
    let (stdin, stdout) = (
        child.stdin.take().expect("in"),
        child.stdout.take().expect("out"),
    );
    let agent = Agent::connect_over(stdout, stdin, PATIENCE).expect("an answer");
    let process = agent
        .spawn(&AgentCommand::new(["sleep", "1000"]))
        .expect("started");
    let id = process.handle.id().expect("an id").to_string();
    drop(process);
    drop(agent);
    assert!(child.wait().expect("ended").success());
    assert!(!exists(&id));
}

#[test]
fn silence_is_the_end_too_unless_one_keeps_it_alive() {
    let (agent, mut child) = start("--silence 1");
    assert!(agent.wait_lost(PATIENCE));
    assert!(child.wait().expect("ended").success());

    let (agent, mut child) = start("--silence 12");
    agent.keep_alive().expect("a thread");
    assert!(!agent.wait_lost(Duration::from_secs(15)));
    assert_eq!(child.try_wait().expect("asked"), None);
    drop(agent);
    assert!(child.wait().expect("ended").success());
}

#[test]
fn the_clock_of_the_same_kernel_is_the_same() {
    let (agent, _child) = start("");
    let relation = agent.clock(50).expect("related");
    assert_eq!(relation.exchanges, 50);
    assert!(
        relation.offset.0.unsigned_abs() <= relation.uncertainty.0,
        "{relation:?}"
    );
}

#[test]
fn a_shell_on_a_terminal() {
    let (agent, _child) = start("");
    let mut command = AgentCommand::new(["sh"]);
    command.terminal = Some(TerminalSize {
        rows: 30,
        columns: 100,
    });
    command.env = vec![("PS1".to_owned(), String::new())];
    let mut process = agent.spawn(&command).expect("started");
    let mut lines = BufReader::new(&mut process.stdout).lines();
    // What one writes is echoed, so results are told from it by arithmetic.
    let mut ask = |what: &str, expected: &str| {
        process.stdin.write_all(what.as_bytes()).expect("written");
        let found = lines.any(|line| line.expect("text").contains(expected));
        assert!(found, "{what} does not give {expected}");
    };
    ask("stty -echo; echo $((40+2))\n", "42");
    ask("stty size\n", "30 100");
    process
        .handle
        .resize(TerminalSize {
            rows: 10,
            columns: 40,
        })
        .expect("sent");
    ask("stty size\n", "10 40");
    ask("test -t 0 && test -t 2 && echo $((6*7+1))\n", "43");
    // Control and C reaches what runs in the foreground; it also empties the terminal's input,
    // so nothing else may be on its way.
    ask("echo $((50-1)); sleep 1000\n", "49");
    let children = format!(
        "/proc/{0}/task/{0}/children",
        process.handle.id().expect("an id")
    );
    eventually("sleep runs", || {
        std::fs::read_to_string(&children).is_ok_and(|ids| !ids.is_empty())
    });
    ask("\x03", "");
    ask("echo $((50+1))\n", "51");
    drop(process.stdin);
    let status = process
        .handle
        .wait(PATIENCE)
        .expect("ended")
        .expect("ended");
    assert!(status.success() || status.code() == Some(130), "{status:?}");
}

/// A peer that hangs is one whose kernel still takes what is sent to it, for a while.
#[test]
fn a_far_side_that_is_stopped_is_silent_within_the_limit() {
    let (agent, mut child) = start("");
    agent.clock(1).expect("it lives");
    let far = child.id().to_string();
    let stop = |signal: &str| {
        let sent = Command::new("kill").args([signal, &far]).status();
        assert!(sent.expect("kill").success());
    };
    stop("-STOP");
    let begin = Instant::now();
    let limit = Duration::from_millis(300);
    let error = agent
        .spawn_within(&shell("true"), limit)
        .expect_err("it is stopped");
    assert!(
        matches!(error, AgentError::Silent(waited) if waited == limit),
        "{error}"
    );
    assert!(error.to_string().contains("fix: "), "{error}");
    assert!(begin.elapsed() < PATIENCE);
    assert!(matches!(agent.clock(1), Err(AgentError::Silent(_))));
    // It goes on: what it was asked meanwhile is forgotten.
    stop("-CONT");
    assert_eq!(
        text(agent.spawn(&shell("echo on")).expect("started").stdout),
        "on\n"
    );
    drop(agent);
    assert!(child.wait().expect("ended").success());
}

#[test]
fn nobody_answers() {
    let (near, _far) = UnixStream::pair().expect("sockets");
    let error = Agent::connect(near, Duration::from_millis(200)).expect_err("nobody");
    assert!(matches!(error, AgentError::Silent(_)), "{error}");
    let (near, far) = UnixStream::pair().expect("sockets");
    drop(far);
    let error = Agent::connect(near, PATIENCE).expect_err("gone");
    assert!(matches!(error, AgentError::Lost(_)), "{error}");
}
