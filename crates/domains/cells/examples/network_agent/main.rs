// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests networks between Linux cells and the root, in a booted root that does not use the memory from 0x7000_0000
//! (`mem=`). The same program also runs inside the cells:
//!
//! ```text
//! network_agent run | crash KERNEL METER MODULE     in the root
//! network_agent bare DIRECTORY SECONDS              in the root: programs without an operating system
//! network_agent compare KERNEL METER MODULE DIRECTORY   in the root: costs beside those of a veth pair
//! network_agent up PEER ADDRESS                     anywhere: configures the interface with this peer
//! network_agent reach ADDRESS                       anywhere: waits for an answer
//! network_agent answer PORT | exchange ADDRESS PORT BYTES | ping ADDRESS COUNT
//! network_agent serve PORT                          anywhere: the other end of `compare`
//! network_agent rounds ADDRESS PORT                 anywhere: exchanges for ever
//! ```
//!
//! Each check prints a line that begins with `ok` or `FAILED`; figures begin with `figure`, lines of a cell's
//! console with `cell`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod costs;
mod interface;
#[path = "../linux_cell/mod.rs"]
mod linux_cell;
mod traffic;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentHandle};
use rampart_cells::linux::LinuxCell;
use rampart_cells::network::{DEFAULT_BYTES, NetworkRequest};
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, CpuSelection};
use rampart_hypervisor_core::interface::Exit;
use rampart_model::{CpuId, CpuSet};

use interface::{Ethtool, count_of, has_carrier, show_packets, up};
use linux_cell::{
    GUEST_PROGRAM, Parts, Result, agent_of, enable, exit_code, output, print_console, report,
    resolved,
};
use traffic::{answer, echoes, exchange, ping, reach};

const HYPERVISOR: (u64, u64) = (0x7000_0000, 8 << 20);
const MEMORY: u64 = 120 << 20;
const BOOT_TIMEOUT: Duration = Duration::from_secs(240);
const TIMEOUT: Duration = Duration::from_secs(120);
const PORT: &str = "7";
/// Bytes of each direction of an exchange.
const BYTES: &str = "4194304";
const PINGS: &str = "20";

/// Exchanges for ever, with a line for each round.
fn rounds(address: &str, port: &str) -> Result<()> {
    for round in 1.. {
        exchange(address, port, 100_000)?;
        println!("round {round}");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Boots a cell with networks to these peers.
fn boot_with(parts: &Parts, name: &str, cpu: u32, peers: &[&str]) -> Result<LinuxCell> {
    let networks = peers.iter().map(|peer| NetworkRequest {
        peer: (*peer).to_owned(),
        bytes: DEFAULT_BYTES,
        cached: true,
    });
    let request = CellRequest {
        networks: networks.collect(),
        cpus: CpuSelection::List([CpuId(cpu)].into_iter().collect()),
        ..CellRequest::linux(name, MEMORY)
    };
    Ok(parts.boot(resolved(&request)?)?)
}

/// Returns the output of this program in the cell, and prints it.
fn inside(agent: &Agent, words: &[&str]) -> Result<String> {
    let text = output(agent, &[&[GUEST_PROGRAM], words].concat(), TIMEOUT)?;
    print!("{text}");
    Ok(text)
}

/// Starts to answer exchanges in the cell.
fn answering(agent: &Agent) -> Result<AgentHandle> {
    started(agent, &["answer", PORT], "answering")
}

/// Starts this program in the cell, and waits for its first line.
fn started(agent: &Agent, words: &[&str], first: &str) -> Result<AgentHandle> {
    let mut command = vec![GUEST_PROGRAM];
    command.extend(words);
    let process = agent.spawn(&AgentCommand::new(command))?;
    let mut line = String::new();
    BufReader::new(process.stdout).read_line(&mut line)?;
    report(line.trim() == first, &format!("a cell is {first}"));
    // Its standard input stays open as long as the process.
    std::mem::forget(process.stdin);
    Ok(process.handle)
}

fn exits(cell: &LinuxCell) -> Result<Vec<u64>> {
    Ok(cell.exits()?.concat())
}

/// Prints the exits of a cell for each packet that it received and sent meanwhile.
fn print_exits(what: &str, before: &[u64], after: &[u64], packets: u64) {
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let (count, exit) = (after - before, Exit::try_from(number as u32));
        if let Ok(exit) = exit
            && count > 0
        {
            let each = count as f64 / packets.max(1) as f64;
            println!("figure {what}: exit {exit:?} {count}, {each:.2} a packet");
        }
    }
}

fn packets(agent: &Agent, peer: &str) -> Result<u64> {
    let text = inside(agent, &["packets", peer])?;
    Ok(text.trim().parse()?)
}

/// Boots two cells, `near` with the root and with `far`, and configures all interfaces.
fn boot(parts: &Parts) -> Result<[(LinuxCell, Agent); 2]> {
    let near = boot_with(parts, "near", 3, &["root", "far"])?;
    let far = boot_with(parts, "far", 2, &["near"])?;
    let near_agent = agent_of(&near, "near", BOOT_TIMEOUT)?;
    let far_agent = agent_of(&far, "far", BOOT_TIMEOUT)?;
    up("near", "10.1.0.1")?;
    inside(&near_agent, &["up", "root", "10.1.0.2"])?;
    inside(&near_agent, &["up", "far", "10.2.0.1"])?;
    inside(&far_agent, &["up", "near", "10.2.0.2"])?;
    Ok([(near, near_agent), (far, far_agent)])
}

fn run(kernel: &str, meter: &str, module: &str) -> Result<()> {
    let device = enable(HYPERVISOR)?;
    let parts = Parts::read(kernel, meter, &[module], &[])?;
    let [(near, near_agent), (far, far_agent)] = boot(&parts)?;
    let _near_answers = answering(&near_agent)?;
    let _far_answers = answering(&far_agent)?;
    report(has_carrier("near", true)?, "root and cell: carrier");
    let answered = ping("10.1.0.2", PINGS.parse()?)?;
    report(answered == PINGS.parse::<u16>()?, "root and cell: ping");
    let before = (exits(&near)?, packets(&near_agent, "root")?);
    let exchanged = exchange("10.1.0.2", PORT, BYTES.parse()?);
    report(
        exchanged.is_ok(),
        &format!("root and cell: TCP {exchanged:?}"),
    );
    let after = (exits(&near)?, packets(&near_agent, "root")?);
    print_exits("root and cell", &before.0, &after.0, after.1 - before.1);

    ethtool_reports_the_device()?;

    let text = inside(&near_agent, &["ping", "10.2.0.2", PINGS])?;
    report(
        text.contains(&format!("answered {PINGS} of {PINGS}")),
        "cell and cell: ping",
    );
    let before = (exits(&near)?, packets(&near_agent, "far")?);
    let text = inside(&near_agent, &["exchange", "10.2.0.2", PORT, BYTES])?;
    report(text.contains("exchanged"), "cell and cell: TCP");
    let after = (exits(&near)?, packets(&near_agent, "far")?);
    print_exits("cell and cell", &before.0, &after.0, after.1 - before.1);

    // A cell that starts again connects again.
    print_console(&far);
    far.stop()?;
    drop(far_agent);
    far.start()?;
    let far_agent = far.agent(BOOT_TIMEOUT)?;
    inside(&far_agent, &["up", "near", "10.2.0.2"])?;
    // A frame that is sent before both have noticed the restart is lost.
    inside(&near_agent, &["reach", "10.2.0.2"])?;
    let text = inside(&near_agent, &["ping", "10.2.0.2", PINGS])?;
    report(
        text.contains(&format!("answered {PINGS} of {PINGS}")),
        "cell and cell: ping after a restart",
    );
    for cell in [&near, &far] {
        print_console(cell);
    }
    near.stop()?;
    // It answers no frame any more.
    let _ = ping("10.1.0.2", 3);
    report(
        has_carrier("near", false)?,
        "root and cell: no carrier after its end",
    );
    let reported = Ethtool::of("near")?;
    report(!reported.has_link, "ethtool: no link after its end");
    near.destroy()?;
    far.destroy()?;
    device.disable()?;
    report(true, "left");
    Ok(())
}

/// After traffic with `near`.
fn ethtool_reports_the_device() -> Result<()> {
    let reported = Ethtool::of("near")?;
    println!("figure ethtool: {reported:?}");
    let device = fs::canonicalize("/sys/class/net/rampart0/device")?;
    let device = device.file_name().unwrap_or_default().to_string_lossy();
    report(
        reported.driver == "rampart-net" && reported.bus == device,
        "ethtool: driver and device",
    );
    report(
        reported.has_link && reported.is_full_duplex,
        "ethtool: link and duplex",
    );
    let is_above = |name, least| reported.count(name).is_some_and(|count| count > least);
    report(
        ["interrupts", "rings_received", "rings_sent"]
            .iter()
            .all(|name| is_above(*name, 10))
            && reported.count("sessions") == Some(1)
            && reported.count("refused") == Some(0),
        "ethtool: statistics",
    );
    Ok(())
}

/// Creates, loads and starts a program without an operating system that has a network with this peer.
fn start_bare(name: &str, peer: &str, image: &Path, argument: u64) -> Result<()> {
    let operator = Operator::open()?;
    let request = CellRequest {
        networks: vec![NetworkRequest {
            peer: peer.to_owned(),
            bytes: DEFAULT_BYTES,
            cached: false,
        }],
        argument,
        ..CellRequest::new(name)
    };
    let failed = |error| format!("{name}: {error:?}");
    let resolved = operator
        .resolved(&request, &CpuSet::new())
        .map_err(failed)?;
    operator.create(&resolved).map_err(failed)?;
    operator
        .load(name, None, &fs::read(image)?)
        .map_err(failed)?;
    operator.start(name).map_err(failed)?;
    Ok(())
}

/// Starts two programs that have a network with each other alone, and waits until many packets have returned.
fn programs_exchange_packets(operator: &Operator, image: &Path) -> Result<()> {
    const RETURNED: u64 = 300;
    start_bare("far", "near", image, 0x0a01_0002)?;
    start_bare("near", "far", image, 0x0a01_0002 << 32 | 0x0a01_0001)?;
    let counts = |name: &str| -> Result<[u64; 2]> {
        let page = operator.region(name, "0");
        let page = page.map_err(|error| format!("{error:?}"))?;
        Ok([8, 4].map(|word| page.words()[word].load(std::sync::atomic::Ordering::Relaxed)))
    };
    let begin = Instant::now();
    while counts("near")?[0] < RETURNED && begin.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (near, far) = (counts("near")?, counts("far")?);
    report(
        near[0] >= RETURNED && far[0] >= RETURNED && near[1] == 0,
        &format!("two programs: {RETURNED} packets returned unchanged: {near:?} {far:?}"),
    );
    Ok(())
}

fn bare(directory: &str, seconds: u64) -> Result<()> {
    let device = enable(HYPERVISOR)?;
    let operator = Operator::open()?;
    let image = |name: &str| Path::new(directory).join(name);
    start_bare("echo", "root", &image("rampart-cell-network"), 0x0a01_0002)?;
    up("echo", "10.1.0.1")?;
    report(
        has_carrier("echo", true)?,
        "without an operating system: carrier",
    );
    let answered = ping("10.1.0.2", PINGS.parse()?)?;
    report(
        answered == PINGS.parse::<u16>()?,
        "without an operating system: ping",
    );
    let returned = echoes("10.1.0.2", 50)?;
    report(
        returned == 50,
        &format!("without an operating system: UDP, {returned} of 50"),
    );
    let gone = |name: &str| operator.destroy(name).map_err(|error| format!("{error:?}"));
    gone("echo")?;

    for seed in 1..=2 {
        start_bare(
            "hostile",
            "root",
            &image("rampart-cell-network-hostile"),
            seed,
        )?;
        up("hostile", "10.1.0.1")?;
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.set_broadcast(true)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(seconds) {
            for _ in 0..50 {
                // There is no answer, and often no carrier.
                let _ = socket.send_to(&[0; 1000], ("10.1.0.255", 9));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let counts = ["rx_packets", "rx_errors", "tx_packets", "tx_dropped"]
            .map(|file| count_of("hostile", file).unwrap_or(0));
        println!("figure hostile {seed}: received, invalid, sent, dropped {counts:?}");
        report(
            counts[0] > 100 && counts[1] > 10,
            &format!("hostile {seed}: its frames were taken and its errors counted"),
        );
        gone("hostile")?;
    }
    start_bare("echo", "root", &image("rampart-cell-network"), 0x0a01_0002)?;
    up("echo", "10.1.0.1")?;
    let answered = ping("10.1.0.2", PINGS.parse()?)?;
    report(answered == PINGS.parse::<u16>()?, "after the attack: ping");
    gone("echo")?;
    programs_exchange_packets(&operator, &image("rampart-cell-network"))?;
    gone("near")?;
    gone("far")?;
    device.disable()?;
    report(true, "left");
    Ok(())
}

/// Panics while two cells exchange; the reader of the machine's memory examines the cells.
fn crash(kernel: &str, meter: &str, module: &str) -> Result<()> {
    let _device = enable(HYPERVISOR)?;
    let parts = Parts::read(kernel, meter, &[module], &[])?;
    let [(near, near_agent), (_far, far_agent)] = boot(&parts)?;
    let to_root = near.regions().to_root;
    println!(
        "figure to the root: {:#x}+{:#x}",
        to_root.start, to_root.bytes
    );
    let _far_answers = answering(&far_agent)?;
    let process = near_agent.spawn(&AgentCommand::new([
        GUEST_PROGRAM,
        "rounds",
        "10.2.0.2",
        PORT,
    ]))?;
    for line in BufReader::new(process.stdout).lines() {
        if line?.starts_with("round 3") {
            println!("figure rounds before the panic: 3");
            std::io::stdout().flush()?;
            // Wait until the line has been transmitted.
            std::thread::sleep(Duration::from_secs(1));
            fs::write("/proc/sysrq-trigger", "c")?;
        }
    }
    Err("the root did not panic".into())
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", kernel, meter, module] => run(kernel, meter, module),
        ["crash", kernel, meter, module] => crash(kernel, meter, module),
        ["bare", directory, seconds] => seconds
            .parse()
            .map_err(Into::into)
            .and_then(|seconds| bare(directory, seconds)),
        ["compare", kernel, meter, module, programs] => {
            costs::compare(kernel, meter, module, programs)
        }
        ["serve", port] => costs::serve(port),
        ["up", peer, address] => up(peer, address),
        ["packets", peer] => show_packets(peer),
        ["answer", port] => answer(port),
        ["exchange", address, port, bytes] => bytes
            .parse()
            .map_err(Into::into)
            .and_then(|bytes| exchange(address, port, bytes))
            .map(|()| println!("exchanged {bytes}")),
        ["ping", address, count] => count
            .parse()
            .map_err(Into::into)
            .and_then(|count| ping(address, count))
            .map(|_| ()),
        ["reach", address] => reach(address),
        ["rounds", address, port] => rounds(address, port),
        _ => Err("see the top of network_agent.rs".into()),
    };
    exit_code(done)
}
