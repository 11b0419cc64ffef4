// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A control loop on a CPU of its own, in a program whose other threads use files and sockets: one writes each record
//! to a file, one answers requests over TCP. As root, with the module `detach` loaded:
//!
//! ```sh
//! control_loop CPU SECONDS [FILE]
//! ```
#![allow(clippy::print_stdout, reason = "a program")]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rampart_detach::mailbox::{Consumer, Producer, RingBuffer};
use rampart_detach::{Counts, Cpu, DetachError};

const PERIOD: Duration = Duration::from_millis(1);

/// A record of one turn, for the other threads.
#[derive(Clone, Copy)]
struct Record {
    turn: u64,
    late: Duration,
    output: f64,
}

#[derive(Default)]
struct Totals {
    turns: u64,
    lost: u64,
    attached: u64,
}

/// The part to replace.
fn control(turn: u64, state: &mut f64) -> f64 {
    let error = (turn % 100) as f64 - *state;
    *state += 0.1 * error;
    *state
}

/// Makes no system call: it has its clock, and speaks with the other threads by the mailbox.
fn run_loop(
    cpu: &mut Cpu,
    turns: u64,
    mut mailbox: Producer<Record>,
) -> Result<Totals, DetachError> {
    cpu.run(|thread| {
        let mut totals = Totals::default();
        let mut state = 0.0;
        let mut next = thread.now() + PERIOD;
        for turn in 0..turns {
            // A signal attaches the thread. Attached, it works too, with interrupts.
            if !thread.is_detached() && thread.detach().is_err() {
                totals.attached += 1;
            }
            thread.sleep_until(next);
            let late = thread.now() - next;
            let output = control(turn, &mut state);
            let record = Record { turn, late, output };
            totals.lost += u64::from(mailbox.push(record).is_err());
            totals.turns += 1;
            next = next + PERIOD;
        }
        totals
    })
}

/// Writes each record to a file, and returns the worst.
fn write_records(
    mut mailbox: Consumer<Record>,
    file: File,
    last_turn: &AtomicU64,
) -> std::io::Result<Duration> {
    let mut file = BufWriter::new(file);
    let mut worst = Duration::ZERO;
    while !mailbox.is_abandoned() || !mailbox.is_empty() {
        while let Ok(Record { turn, late, output }) = mailbox.pop() {
            writeln!(file, "{turn} {} {output}", late.as_nanos())?;
            last_turn.store(turn, Ordering::Relaxed);
            worst = worst.max(late);
        }
        thread::sleep(Duration::from_millis(10));
    }
    file.flush()?;
    Ok(worst)
}

/// Answers each connection with the last turn.
fn answer(listener: &TcpListener, last_turn: &AtomicU64, finished: &AtomicBool) -> u64 {
    let mut answers = 0;
    for stream in listener.incoming().flatten() {
        if finished.load(Ordering::Relaxed) {
            break;
        }
        let mut stream = stream;
        answers += u64::from(writeln!(stream, "{}", last_turn.load(Ordering::Relaxed)).is_ok());
    }
    answers
}

/// Asks until the loop ends.
fn ask(address: SocketAddr, finished: &AtomicBool) {
    let mut text = String::new();
    while !finished.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(address) {
            text.clear();
            let _ = stream.read_to_string(&mut text);
        }
        thread::sleep(Duration::from_millis(5));
    }
    // Ends the thread that answers.
    let _ = TcpStream::connect(address);
}

/// Locks all memory, because the first touch of a page interrupts the loop.
fn lock_memory() -> std::io::Result<()> {
    rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let (Some(cpu), Some(seconds)) = (arguments.get(1), arguments.get(2)) else {
        return Err("usage: control_loop CPU SECONDS [FILE]".into());
    };
    let turns = seconds.parse::<u64>()? * 1000;
    let file = File::create(arguments.get(3).map_or("/dev/null", String::as_str))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    lock_memory()?;

    let mut cpu = Cpu::take(cpu.parse()?)?;
    let before = cpu.counts()?;
    let (sender, receiver) = RingBuffer::new(1024);
    let last_turn = AtomicU64::new(0);
    let finished = AtomicBool::new(false);
    let (totals, worst, answers) = thread::scope(|scope| {
        let control = scope.spawn(|| run_loop(&mut cpu, turns, sender));
        let write = scope.spawn(|| write_records(receiver, file, &last_turn));
        let answers = scope.spawn(|| answer(&listener, &last_turn, &finished));
        scope.spawn(|| ask(address, &finished));
        println!("detached");
        let totals = control.join();
        finished.store(true, Ordering::Relaxed);
        (totals, write.join(), answers.join())
    });
    let panicked = "a thread panicked";
    let (totals, worst) = (
        totals.map_err(|_| panicked)??,
        worst.map_err(|_| panicked)??,
    );
    let answers = answers.map_err(|_| panicked)?;
    let Counts {
        system_calls,
        faults,
        kicks,
        flushes,
        interrupts,
    } = cpu.counts()?.since(before);
    println!(
        "turns {} lost {} attached {} worst {} ns answers {answers}",
        totals.turns,
        totals.lost,
        totals.attached,
        worst.as_nanos()
    );
    println!(
        "system calls {system_calls} faults {faults} kicks {kicks} flushes {flushes} interrupts {interrupts}"
    );
    if totals.attached > 0 {
        return Err("the loop was attached".into());
    }
    Ok(())
}
