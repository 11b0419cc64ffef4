// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests do in a booted root, one command each: `cells_hand enable BASE BYTES` ...
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use std::path::Path;

use rampart_cells::device::Device;
use rampart_cells::machine::Machine;

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let device = Device::open()?;
    match words[..] {
        ["enable", base, bytes] => {
            let memory = (number(base), number(bytes));
            let machine = Machine::read(Path::new("/proc/device-tree"), 40)?;
            let blob = machine.system(memory).checked().map_err(|refused| format!("{refused:?}"))?;
            device.enable(memory.0, memory.1, &blob)?;
        }
        ["disable"] => device.disable()?,
        ["exits", cpu] => println!("{:?}", device.status()?.exits(cpu.parse()?)),
        _ => return Err(format!("{words:?}: no such command").into()),
    }
    Ok(())
}
