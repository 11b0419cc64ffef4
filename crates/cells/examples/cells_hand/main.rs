// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests do in a booted root, whose memory from 0x7000_0000 Linux leaves alone (`mem=`):
//!
//! ```text
//! cells_hand enable | disable | start DIRECTORY | leave TURNS | cells DIRECTORY | turns TURNS DIRECTORY
//! ```
//!
//! Each check is a line that begins with `ok` or `FAILED`; figures begin with `figure`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod alarm;
mod attacks;
mod bells;
mod bits;
mod failures;
mod launch;
mod memory;
mod pair;
mod support;
mod turns;

use std::path::Path;
use std::time::Duration;

use rampart_cells::device::Device;

use support::{
    Done, FIRST, INTERRUPTS, PATIENCE, Physical, beside, enable, say, wait_until, without_exits,
};

/// All that is done beside one cell that must not notice it.
fn cells(device: &Device, directory: &Path) -> Done {
    let program = |name: &str| {
        let path = directory.join(format!("rampart-cell-{name}"));
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let irq = program("irq")?;
    enable(device)?;
    let first = FIRST.start(device, 1000, &irq)?;
    without_exits(device, "timer", &FIRST, &[INTERRUPTS], 500);
    let again = FIRST.blob(0).bytes();
    say(
        device.create(&again).is_err(),
        "a CPU and memory have one owner",
    );

    let attack = program("attack")?;
    let (pair, reach) = (program("pair")?, program("reach")?);
    let (bits, bell, alarm) = (program("bits")?, program("bell")?, program("alarm")?);
    beside(device, "memory, from the root", || {
        memory::from_the_root();
        Ok(())
    });
    attacks::all(device, &attack);
    beside(device, "memory, from a cell", || {
        memory::from_a_cell(device, &reach)
    });
    beside(device, "two CPUs", || pair::pair(device, &pair));
    beside(device, "bits", || bits::bits(device, &bits));
    beside(device, "bells", || bells::bells(device, &bell));
    beside(device, "alarm", || alarm::alarm(device, &alarm));
    beside(device, "failures", || {
        failures::told_in_time(device, &attack)
    });
    beside(device, "watchdog", || failures::watchdog(device, &irq));
    end(device, first)
}

/// The first cell is stopped, started again, and ended.
fn end(device: &Device, first: u32) -> Done {
    device.stop(first)?;
    let page = FIRST.page();
    let stopped = page.word(INTERRUPTS);
    std::thread::sleep(Duration::from_millis(50));
    say(
        page.word(INTERRUPTS) == stopped,
        "a stopped cell does nothing",
    );
    device.start(first)?;
    let again = wait_until(PATIENCE, || page.word(INTERRUPTS) > stopped + 10);
    say(again, "it starts again");
    device.destroy(first)?;
    let wiped = Physical::map(FIRST.memory, support::CODE_BYTES, false).is_zero();
    say(wiped, "what was loaded is wiped");
    device.disable()?;
    say(true, "left");
    Ok(())
}

fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let device = Device::open()?;
    match words[..] {
        ["enable"] => enable(&device),
        ["disable"] => Ok(device.disable()?),
        // The cell stays when this program ends.
        ["start", directory] => {
            enable(&device)?;
            let program = std::fs::read(Path::new(directory).join("rampart-cell-irq"))?;
            FIRST.start(&device, 1000, &program)?;
            Ok(())
        }
        ["leave", count] => launch::leave(&device, count.parse()?),
        ["cells", directory] => cells(&device, Path::new(directory)),
        ["turns", count, directory] => turns::turns(&device, count.parse()?, Path::new(directory)),
        _ => Err(format!("{words:?}: no such command").into()),
    }
}
