// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests cells in a booted root that does not use the memory from 0x7000_0000 (`mem=`):
//!
//! ```text
//! cells_agent keep DIRECTORY KERNEL METER | again COUNT | uptime
//! cells_agent enable | disable | refused | guest | start DIRECTORY | leave TURNS | cells DIRECTORY [TOPIC...] | turns TURNS DIRECTORY
//! ```
//!
//! Each check prints a line that begins with `ok` or `FAILED`; figures begin with `figure`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod alarm;
mod attacks;
mod bells;
mod bits;
mod failures;
mod guest;
mod launch;
mod memory;
mod pair;
mod standby;
mod support;
mod turns;

use std::path::Path;
use std::time::Duration;

use rampart_cells::device::Device;

use support::{
    Done, FIRST, INTERRUPTS, Physical, TIMEOUT, beside, disable, enable, report, wait_until,
    without_exits,
};

/// Runs all topics beside one cell that must not be disturbed, or only the topics with the names in
/// `only`.
fn cells(device: &Device, directory: &Path, only: &[&str]) -> Done {
    let program = |name: &str| {
        let path = directory.join(format!("rampart-cell-{name}"));
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let irq = program("irq")?;
    enable(device)?;
    let first = FIRST.start(device, 1000, &irq)?;
    without_exits(device, "timer", &FIRST, &[INTERRUPTS], 500);
    let again = FIRST.blob(0).bytes();
    report(
        device.create(&again).is_err(),
        "a CPU and memory have one owner",
    );

    let attack = program("attack")?;
    let (pair, reach) = (program("pair")?, program("reach")?);
    let (bits, bell, alarm) = (program("bits")?, program("bell")?, program("alarm")?);
    type Topic<'a> = (&'a str, Box<dyn FnOnce() -> Done + 'a>);
    let topics: [Topic<'_>; 10] = [
        ("root", Box::new(memory::from_the_root)),
        ("attacks", Box::new(|| attacks::all(device, &attack))),
        ("memory", Box::new(|| memory::from_a_cell(device, &reach))),
        ("pair", Box::new(|| pair::pair(device, &pair))),
        ("bits", Box::new(|| bits::bits(device, &bits))),
        ("bells", Box::new(|| bells::bells(device, &bell))),
        ("alarm", Box::new(|| alarm::alarm(device, &alarm))),
        (
            "failures",
            Box::new(|| failures::reports_in_time(device, &attack)),
        ),
        ("return", Box::new(|| failures::cpu_stays_away(device))),
        ("watchdog", Box::new(|| failures::watchdog(device, &irq))),
    ];
    for (name, topic) in topics {
        if only.is_empty() || only.contains(&name) {
            beside(device, name, topic);
        }
    }
    end(device, first)
}

/// Stops, restarts and destroys the first cell.
fn end(device: &Device, first: u32) -> Done {
    device.stop(first)?;
    let page = FIRST.page();
    let stopped = page.word(INTERRUPTS);
    std::thread::sleep(Duration::from_millis(50));
    report(
        page.word(INTERRUPTS) == stopped,
        "a stopped cell does not run",
    );
    device.start(first)?;
    let again = wait_until(TIMEOUT, || page.word(INTERRUPTS) > stopped + 10);
    report(again, "a stopped cell starts again");
    device.destroy(first)?;
    let wiped = Physical::map(FIRST.memory, support::CODE_BYTES, false).is_zero();
    report(wiped, "the memory of a destroyed cell is wiped");
    disable(device)?;
    report(true, "left");
    Ok(())
}

fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    memory::go_on_when_refused();
    match words[..] {
        // The first program of a root that was started again.
        ["again", counted] => return standby::again(counted.parse()?),
        ["uptime"] => return standby::uptime(),
        _ => {}
    }
    let device = Device::open()?;
    match words[..] {
        ["enable"] => enable(&device),
        ["disable"] => disable(&device),
        // The cell continues when this program ends.
        ["start", directory] => {
            enable(&device)?;
            let program = std::fs::read(Path::new(directory).join("rampart-cell-irq"))?;
            FIRST.start(&device, 1000, &program)?;
            Ok(())
        }
        ["keep", directory, kernel, meter] => {
            standby::keep(&device, Path::new(directory), kernel, meter)
        }
        ["refused"] => launch::refused(&device),
        ["guest"] => guest::excluded(&device),
        ["leave", count] => launch::leave(&device, count.parse()?),
        ["cells", directory, ref only @ ..] => cells(&device, Path::new(directory), only),
        ["turns", count, directory] => turns::turns(&device, count.parse()?, Path::new(directory)),
        _ => Err(format!("{words:?}: no such command").into()),
    }
}
