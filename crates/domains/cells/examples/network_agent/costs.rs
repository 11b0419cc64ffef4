// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a network with a cell costs beside a veth pair between the root and a network namespace: the same programs
//! exchange the same packets by both, in turn.
//!
//! A stream is UDP packets in one direction; each [`BATCH`] of them is acknowledged by one, and at most [`WINDOW`] are on
//! their way, so that no receiver loses one.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rampart_cells::device::Device;
use rampart_cells::operate::Operator;
use rampart_hypervisor_core::interface::Exit;

use crate::interface::up;
use crate::linux_cell::{Parts, Result, enable, report};
use crate::{HYPERVISOR, PORT, TIMEOUT, boot_with, inside, start_bare, started};

const REPETITIONS: u32 = 9;
/// Packets of a stream, and of round trips.
const PACKETS: u32 = 2048;
const ROUND_TRIPS: u32 = 256;
const BATCH: u32 = 32;
const WINDOW: u32 = 64;
const TCP_BYTES: usize = 4 << 20;
/// Bytes of UDP in frames of 1,514 and 60 bytes.
const LARGE: usize = 1472;
const SMALL: usize = 18;
/// First byte of a packet that the server returns, and of one that it counts.
const ECHO: u8 = b'e';
const COUNT: u8 = b'c';

/// Answers the packets of [`stream`] and [`round_trips`], and counts the bytes of [`tcp`], for ever.
pub(crate) fn serve(port: &str) -> Result<()> {
    let port = port.parse()?;
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if let Err(error) = stream.map_err(Into::into).and_then(count_bytes) {
                println!("serve: {error}");
            }
        }
    });
    println!("serving");
    let (mut packet, mut counted) = ([0; LARGE], 0_u32);
    loop {
        let (bytes, sender) = socket.recv_from(&mut packet)?;
        if packet[0] == ECHO {
            socket.send_to(&packet[..bytes], sender)?;
            continue;
        }
        counted += 1;
        if counted.is_multiple_of(BATCH) {
            socket.send_to(&[COUNT; SMALL], sender)?;
        }
    }
}

fn count_bytes(mut stream: TcpStream) -> Result<()> {
    let (mut buffer, mut counted) = (vec![0; 64 << 10], 0_u64);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(stream.write_all(&counted.to_le_bytes())?),
            bytes => counted += bytes as u64,
        }
    }
}

fn connected(address: &str) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(format!("{address}:{PORT}"))?;
    Ok(socket)
}

/// Sends packets in one direction. Returns the number of packets.
fn stream(address: &str, bytes: usize) -> Result<u32> {
    let socket = connected(address)?;
    let packet = vec![COUNT; bytes];
    let (mut acknowledgement, mut taken) = ([0; LARGE], 0);
    let mut wait = |taken: &mut u32| -> Result<()> {
        socket.recv(&mut acknowledgement)?;
        *taken += BATCH;
        Ok(())
    };
    for sent in 0..PACKETS {
        if sent - taken == WINDOW {
            wait(&mut taken)?;
        }
        socket.send(&packet)?;
    }
    while taken < PACKETS {
        wait(&mut taken)?;
    }
    Ok(PACKETS)
}

/// Sends a packet when the one before has returned. Returns the number of round trips.
fn round_trips(address: &str) -> Result<u32> {
    let socket = connected(address)?;
    let mut answer = [0; LARGE];
    for _ in 0..ROUND_TRIPS {
        socket.send(&[ECHO; SMALL])?;
        socket.recv(&mut answer)?;
    }
    Ok(ROUND_TRIPS)
}

/// Sends bytes by TCP. Returns their number in KiB.
fn tcp(address: &str) -> Result<u32> {
    let mut stream = TcpStream::connect(format!("{address}:{PORT}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&vec![0; TCP_BYTES])?;
    stream.shutdown(Shutdown::Write)?;
    let mut counted = [0; 8];
    stream.read_exact(&mut counted)?;
    if u64::from_le_bytes(counted) != TCP_BYTES as u64 {
        return Err("the receiver counted other bytes".into());
    }
    Ok((TCP_BYTES >> 10) as u32)
}

type Traffic = (&'static str, fn(&str) -> Result<u32>);

const TRAFFIC: [Traffic; 4] = [
    ("stream of 1,514-byte frames, a frame", |to| {
        stream(to, LARGE)
    }),
    ("stream of 60-byte frames, a frame", |to| stream(to, SMALL)),
    ("60-byte frame and its answer, a round trip", round_trips),
    ("TCP in one direction, a KiB", tcp),
];

/// Runs a program on one CPU.
fn on_cpu(cpu: u32, words: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string()]).args(words);
    command
}

fn succeeds(words: &[&str]) -> Result<()> {
    let status = Command::new(words[0]).args(&words[1..]).status()?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{words:?}: {status}").into())
}

/// A veth pair with a network namespace, in which this program serves on CPU 1.
struct Namespace(Child);

impl Namespace {
    fn open(near: &str, far: &str) -> Result<Self> {
        let program = std::env::current_exe()?;
        let program = program.to_str().ok_or("a path in UTF-8")?;
        let child = on_cpu(1, &["unshare", "-n", program, "serve", PORT]).spawn()?;
        let process = child.id().to_string();
        let namespace = Self(child);
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let begin = Instant::now();
        while std::fs::read_link(format!("/proc/{process}/ns/net"))? == own {
            if begin.elapsed() > TIMEOUT {
                return Err("no namespace".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        succeeds(&["modprobe", "veth"])?;
        let add = [
            "ip", "link", "add", "near", "type", "veth", "peer", "name", "far",
        ];
        succeeds(&[&add[..], &["netns", &process]].concat())?;
        let inside = ["nsenter", "-t", &process, "-n"];
        for (before, end, address) in [(&[][..], "near", near), (&inside[..], "far", far)] {
            let address = format!("{address}/24");
            succeeds(&[before, &["ip", "address", "add", &address, "dev", end]].concat())?;
            succeeds(&[before, &["ip", "link", "set", end, "up"]].concat())?;
        }
        Ok(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its interfaces end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the exits by reason of all CPUs of a cell; 0 is the root.
fn exits(device: &Device, cell: u32) -> Result<Vec<u64>> {
    let status = device.status()?;
    let mut sums = Vec::new();
    for (index, cpu) in status.get().cpus.iter().enumerate() {
        if cpu.cell() != cell {
            continue;
        }
        let counts = status.exits(index);
        sums.resize(counts.len(), 0);
        sums.iter_mut()
            .zip(&counts)
            .for_each(|(sum, count)| *sum += count);
    }
    Ok(sums)
}

/// Measures one kind of traffic, and prints the time of a unit, and for each end with a cell its exits.
fn measure(
    (what, traffic): Traffic,
    to: &str,
    address: &str,
    ends: &[(&str, &Device, u32)],
) -> Result<()> {
    let counted = |&(_, device, cell): &(&str, &Device, u32)| exits(device, cell);
    let before: Vec<_> = ends.iter().map(counted).collect::<Result<_>>()?;
    let begin = Instant::now();
    let units = traffic(address)?;
    let time = begin.elapsed().as_nanos() as f64 / f64::from(units);
    println!("figure cost;{what};{to};{time:.0}");
    for (end, before) in ends.iter().zip(before) {
        for (number, (before, after)) in before.iter().zip(counted(end)?).enumerate() {
            let exit = Exit::try_from(number as u32)
                .ok()
                .filter(|_| after > *before);
            if let Some(exit) = exit {
                let each = (after - before) as f64 / f64::from(units);
                println!("figure exits;{what};{};{exit:?};{each:.3}", end.0);
            }
        }
    }
    Ok(())
}

/// Measures a veth pair, a network with a Linux cell, and one with a program without an operating system.
pub(crate) fn compare(kernel: &str, meter: &str, module: &str, programs: &str) -> Result<()> {
    // SAFETY: the call reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
    let device = enable(HYPERVISOR)?;
    let parts = Parts::read(kernel, meter, &[module], &[])?;
    let near = boot_with(&parts, "near", 3, &["root"])?;
    let agent = near.agent(crate::BOOT_TIMEOUT)?;
    up("near", "10.1.0.1")?;
    inside(&agent, &["up", "root", "10.1.0.2"])?;
    let _serves = started(&agent, &["serve", PORT], "serving")?;
    let namespace = Namespace::open("10.3.0.1", "10.3.0.2")?;
    let ends = [("root", &device, 0), ("Linux cell", &device, near.number())];
    for traffic in TRAFFIC {
        // The first ones also resolve addresses.
        traffic.1("10.3.0.2")?;
        traffic.1("10.1.0.2")?;
        for _ in 0..REPETITIONS {
            measure(traffic, "veth", "10.3.0.2", &[])?;
            measure(traffic, "cell", "10.1.0.2", &ends)?;
        }
    }
    drop(namespace);
    near.destroy()?;
    start_bare(
        "echo",
        "root",
        &Path::new(programs).join("rampart-cell-network"),
        0x0a01_0002,
    )?;
    up("echo", "10.1.0.1")?;
    let number = Operator::open()?
        .cell("echo")
        .map_err(|error| format!("{error:?}"))?
        .number;
    let ends = [("root", &device, 0), ("program", &device, number)];
    let what = "60-byte frame and its answer, a round trip with a program";
    round_trips("10.1.0.2")?;
    for _ in 0..REPETITIONS {
        measure((what, round_trips), "cell", "10.1.0.2", &ends)?;
    }
    Operator::open()?
        .destroy("echo")
        .map_err(|error| format!("{error:?}"))?;
    device.disable()?;
    report(true, "compared");
    Ok(())
}
