// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raises a shield, shows it, lowers it: `shield CPUS HOUSEKEEPING [SECONDS]`. Without
//! arguments releases what was left.
#![expect(clippy::print_stdout, reason = "it is here to show")]

use std::error::Error;
use std::time::{Duration, Instant};

use rampart_host::{Shield, StateDirectory, pending, release};

fn main() -> Result<(), Box<dyn Error>> {
    let state = StateDirectory::standard();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cpus, housekeeping, rest @ ..] = arguments.as_slice() else {
        println!("{:#?}\n{:#?}", pending(&state), release(&state)?);
        return Ok(());
    };
    let begin = Instant::now();
    let shield = Shield::raise(&state, &cpus.parse()?, &housekeeping.parse()?)?;
    let raised = begin.elapsed();
    println!("{:#?}\n{:?}", shield.report(), shield.control_group());
    if let Some(seconds) = rest.first() {
        std::thread::sleep(Duration::from_secs(seconds.parse()?));
    }
    let begin = Instant::now();
    let report = shield.lower()?;
    println!("raised in {raised:?}, lowered in {:?}", begin.elapsed());
    for finding in report.findings {
        println!("{finding}");
    }
    Ok(())
}
