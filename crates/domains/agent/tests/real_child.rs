// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests client and agent over real pipes and sockets, with real programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError, TerminalSize};

const TIMEOUT: Duration = Duration::from_secs(60);

fn start_agent(input: Stdio, output: Stdio, arguments: &str) -> Child {
    let here = std::env::current_exe().expect("this program");
    let target = here.ancestors().nth(2).expect("deps is in a directory");
    Command::new(target.join("examples/standalone_agent"))
        .args(arguments.split_whitespace())
        .stdin(input)
        .stdout(output)
        .spawn()
        .expect("the example standalone_agent, which cargo builds with these tests")
}

/// Starts an agent over a socket.
fn start(arguments: &str) -> (Agent, Child) {
    let (near, far) = UnixStream::pair().expect("sockets");
    let again = far.try_clone().expect("socket");
    let child = start_agent(
        OwnedFd::from(far).into(),
        OwnedFd::from(again).into(),
        arguments,
    );
    (Agent::connect(near, TIMEOUT).expect("an answer"), child)
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
    // A zombie has no command line.
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn hello_describes_the_machine() {
    let (agent, _child) = start("");
    let hello = agent.hello();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    assert_eq!(hello.kernel_release, release.trim());
    assert!(!hello.cpus.is_empty());
    assert_eq!(hello.architecture, std::env::consts::ARCH);
}

#[test]
fn starts_a_program_on_given_cpus() {
    let (agent, _child) = start("");
    let first = agent.hello().cpus.first().expect("a CPU");
    let mut command = AgentCommand::new(["grep", "Cpus_allowed_list", "/proc/self/status"]);
    command.cpus = Some(rampart_model::CpuSet::single(first));
    let started = agent.spawn(&command).expect("started");
    let affinity = text(started.stdout);
    assert_eq!(
        affinity.split_whitespace().last(),
        Some(first.to_string().as_str())
    );
}

#[test]
fn a_program_has_streams_status_environment_and_directory() {
    let (agent, _child) = start("");
    let mut command = shell("cat; pwd; echo \"$WORD\" >&2; exit 7");
    command.env = vec![("WORD".to_owned(), "variable".to_owned())];
    command.directory = Some("/proc".to_owned());
    let mut process = agent.spawn(&command).expect("started");
    assert_eq!(
        process.wait(Duration::from_millis(50)).expect("asked"),
        None
    );
    process.stdin.write_all(b"in\n").expect("written");
    drop(process.stdin);
    assert_eq!(text(process.stdout), "in\n/proc\n");
    assert_eq!(text(process.stderr), "variable\n");
    let status = process.handle.wait(TIMEOUT).expect("ended").expect("ended");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn refuses_a_missing_program_with_the_reason() {
    let (agent, _child) = start("");
    for argv in [vec!["/nowhere/program"], vec![]] {
        let error = agent.spawn(&AgentCommand::new(argv)).expect_err("refused");
        assert!(matches!(error, AgentError::NotStarted { .. }), "{error}");
    }
    // The connection stays usable.
    assert_eq!(
        text(agent.spawn(&shell("echo on")).expect("started").stdout),
        "on\n"
    );
}

#[test]
fn delivers_signals_and_blocks_none() {
    let (agent, _child) = start("");
    // Without a shell, because some shells clear the mask.
    let process = agent
        .spawn(&AgentCommand::new(["grep", "SigBlk", "/proc/self/status"]))
        .expect("started");
    assert_eq!(text(process.stdout).trim(), "SigBlk:\t0000000000000000");
    // As in a background job of a script.
    let process = agent
        .spawn(&AgentCommand::new(["grep", "SigIgn", "/proc/self/status"]))
        .expect("started");
    let ignored = text(process.stdout);
    let ignored = ignored.trim().rsplit('\t').next().expect("a mask");
    let ignored = u64::from_str_radix(ignored, 16).expect("a mask");
    // 32 and 33 are internal signals of the C library, which cannot be changed.
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
    let status = process.handle.wait(TIMEOUT).expect("ended").expect("ended");
    assert_eq!(status.code(), Some(3));

    // A shell waits for its child before it handles its own signals.
    let process = agent.spawn(&shell("sleep 1000; exit 4")).expect("started");
    let begun = Instant::now();
    while process
        .handle
        .wait(Duration::from_millis(20))
        .expect("asked")
        .is_none()
    {
        process.handle.signal_group(2).expect("sent");
        assert!(begun.elapsed() < TIMEOUT, "the program continues");
    }

    let process = agent
        .spawn(&AgentCommand::new(["sleep", "1000"]))
        .expect("started");
    process.signal(9).expect("sent");
    let status = process.wait(TIMEOUT).expect("ended").expect("ended");
    assert_eq!(status.signal(), Some(9));
}

#[test]
fn transfers_large_data_in_both_directions() {
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
        "{} bytes of {} returned",
        back.len(),
        sent.len()
    );
}

/// A program whose output is not read stops, other programs do not, and neither side buffers more
/// than a window of its output.
#[test]
fn a_slow_reader_stops_only_its_own_program() {
    let (agent, _child) = start("");
    let mut endless = agent.spawn(&AgentCommand::new(["yes"])).expect("started");
    let mut sleeper = agent
        .spawn(&AgentCommand::new(["sleep", "1000"]))
        .expect("started");
    let filled = std::thread::spawn(move || {
        // Much more than pipe and window can hold: the write waits until `sleep` has ended.
        let error = sleeper
            .stdin
            .write_all(&vec![0; 4 << 20])
            .expect_err("no program reads it");
        (error.kind(), sleeper)
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
    // Other tests run in this process too; `yes` alone writes gigabytes per second.
    assert!(kilobytes < 300_000, "{peak}");
    let mut some = vec![0; 1 << 20];
    endless
        .stdout
        .read_exact(&mut some)
        .expect("the program continues");
    assert!(some.chunks(2).all(|pair| pair == b"y\n"));
    drop(endless);
    drop(agent);
    let (kind, sleeper) = {
        // That thread has the last handle of the connection, so pkill ends the program.
        let found = Command::new("pkill")
            .args(["-9", "-P", &_child.id().to_string()])
            .status();
        found.expect("pkill");
        filled.join().expect("writer")
    };
    assert_eq!(kind, std::io::ErrorKind::BrokenPipe);
    drop(sleeper);
}

#[test]
fn dropping_a_process_kills_its_process_group() {
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
    // During its exec a process has no command line.
    eventually("both processes exist", || ids.iter().all(|id| exists(id)));
    drop(process);
    eventually("both processes have ended", || {
        !ids.iter().any(|id| exists(id))
    });
}

/// Includes a process in its own session whose parent has ended.
#[test]
fn the_end_of_the_connection_kills_all_descendants() {
    let (agent, mut child) = start("");
    let mut process = agent
        .spawn(&shell(
            "setsid sh -c 'sleep 1000 & echo $!'; trap 'exit 0' TERM; echo $$; while :; do sleep 0.05; done",
        ))
        .expect("started");
    let mut lines = BufReader::new(&mut process.stdout).lines();
    let ids = [(); 2].map(|()| lines.next().expect("a line").expect("text"));
    // During its exec a process has no command line.
    eventually("both processes exist", || ids.iter().all(|id| exists(id)));
    std::mem::forget(process.handle);
    let process = (process.stdin, process.stderr);
    // As if the client had been killed: the stream ends without a message.
    child.stdin.take();
    agent.power_off().expect("sent");
    assert!(child.wait().expect("ended").success());
    assert!(!ids.iter().any(|id| exists(id)), "{ids:?}");
    drop(process);
    assert!(agent.wait_lost(TIMEOUT));
    assert!(matches!(
        agent.spawn(&shell("true")),
        Err(AgentError::Lost(_))
    ));
}

#[test]
fn the_agent_ends_with_the_stream() {
    let mut child = start_agent(Stdio::piped(), Stdio::piped(), "");
    let (stdin, stdout) = (
        child.stdin.take().expect("in"),
        child.stdout.take().expect("out"),
    );
    let agent = Agent::connect_over(stdout, stdin, TIMEOUT).expect("an answer");
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
fn the_agent_ends_on_silence_without_keep_alive() {
    let (agent, mut child) = start("--silence 1");
    assert!(agent.wait_lost(TIMEOUT));
    assert!(child.wait().expect("ended").success());

    let (agent, mut child) = start("--silence 12");
    agent.keep_alive().expect("a thread");
    assert!(!agent.wait_lost(Duration::from_secs(15)));
    assert_eq!(child.try_wait().expect("asked"), None);
    drop(agent);
    assert!(child.wait().expect("ended").success());
}

#[test]
fn clocks_of_one_kernel_are_equal() {
    let (agent, _child) = start("");
    let relation = agent.clock(50).expect("related");
    assert_eq!(relation.exchanges, 50);
    assert!(
        relation.offset.0.unsigned_abs() <= relation.uncertainty.0,
        "{relation:?}"
    );
}

#[test]
fn runs_a_shell_on_a_terminal() {
    let (agent, _child) = start("");
    let mut command = AgentCommand::new(["sh"]);
    command.terminal = Some(TerminalSize {
        rows: 30,
        columns: 100,
    });
    command.env = vec![("PS1".to_owned(), String::new())];
    let mut process = agent.spawn(&command).expect("started");
    let mut lines = BufReader::new(&mut process.stdout).lines();
    // Input is echoed, so arithmetic distinguishes results from input.
    let mut run = |input: &str, expected: &str| {
        process.stdin.write_all(input.as_bytes()).expect("written");
        if expected.is_empty() {
            return;
        }
        let found = lines.any(|line| line.expect("text").contains(expected));
        assert!(found, "{input} does not print {expected}");
    };
    run("stty -echo; echo $((40+2))\n", "42");
    run("stty size\n", "30 100");
    process
        .handle
        .resize(TerminalSize {
            rows: 10,
            columns: 40,
        })
        .expect("sent");
    run("stty size\n", "10 40");
    run("test -t 0 && test -t 2 && echo $((6*7+1))\n", "43");
    // Ctrl+C reaches the foreground job. It also clears the terminal's input, so no other input may
    // be pending, and the shell drops what it has read, so it must wait for input again.
    run("echo $((50-1)); sleep 1000\n", "49");
    let shell = process.handle.id().expect("an id");
    let child = || {
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let first = children.ok()?.split_whitespace().next()?.to_owned();
        std::fs::read_to_string(format!("/proc/{first}/comm")).ok()
    };
    // Before it is `sleep`, it is a copy of the shell that may not be in the foreground yet.
    eventually("sleep runs", || {
        child().is_some_and(|name| name.trim() == "sleep")
    });
    // The terminal clears its output after it has sent the signal, the shell's new line with it if the shell was faster
    // (isig() in drivers/tty/n_tty.c), so no output is waited for.
    run("\x03", "");
    eventually("the shell waits for input", || {
        let state = std::fs::read_to_string(format!("/proc/{shell}/stat"));
        child().is_none() && state.is_ok_and(|text| text.contains(") S "))
    });
    run("echo $((50+1))\n", "51");
    drop(process.stdin);
    let status = process.handle.wait(TIMEOUT).expect("ended").expect("ended");
    assert!(status.success() || status.code() == Some(130), "{status:?}");
}

/// The kernel of a stopped agent still accepts data for a while.
#[test]
fn a_stopped_agent_is_reported_within_the_limit() {
    let (agent, mut child) = start("");
    agent.clock(1).expect("an answer");
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
        .expect_err("the agent is stopped");
    assert!(
        matches!(error, AgentError::NoAnswer(waited) if waited == limit),
        "{error}"
    );
    assert!(error.to_string().contains("fix: "), "{error}");
    assert!(begin.elapsed() < TIMEOUT);
    assert!(matches!(agent.clock(1), Err(AgentError::NoAnswer(_))));
    // The agent continues, and drops the requests that it received meanwhile.
    stop("-CONT");
    assert_eq!(
        text(agent.spawn(&shell("echo on")).expect("started").stdout),
        "on\n"
    );
    drop(agent);
    assert!(child.wait().expect("ended").success());
}

#[test]
fn reports_a_missing_answer() {
    let (near, _far) = UnixStream::pair().expect("sockets");
    let error = Agent::connect(near, Duration::from_millis(200)).expect_err("no agent");
    assert!(matches!(error, AgentError::NoAnswer(_)), "{error}");
    let (near, far) = UnixStream::pair().expect("sockets");
    drop(far);
    let error = Agent::connect(near, TIMEOUT).expect_err("closed");
    assert!(matches!(error, AgentError::Lost(_)), "{error}");
}

#[test]
fn rests_only_after_its_programs_have_ended() {
    let (agent, mut child) = start("--stay");
    let mut process = agent
        .spawn(&shell("echo $$; exec sleep 1000"))
        .expect("started");
    let mut line = String::new();
    BufReader::new(&mut process.stdout)
        .read_line(&mut line)
        .expect("its process id");
    // A process has no command line while it executes another program.
    eventually("the program runs", || exists(line.trim()));
    agent.rest(TIMEOUT).expect("an answer");
    assert!(!exists(line.trim()), "a program of the session still runs");
    // It waits for the next client.
    assert!(child.try_wait().expect("its state").is_none());
    drop(process);
    child.kill().expect("killed");
    let _ = child.wait();
}

#[test]
fn the_clock_of_a_machine_without_a_port_is_not_set() {
    let (agent, mut child) = start("");
    let failed = agent.continued(TIMEOUT).expect("an answer");
    assert_eq!(failed, "this machine was not saved");
    drop(agent);
    assert!(child.wait().expect("ended").success());
}
