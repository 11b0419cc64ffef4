// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints the truth table of `docs/verdicts.md`: `cargo run --release --example truth -p rampart-stats`.
//! The argument is the number of simulated evaluations in each row [default: 300].

#![expect(clippy::print_stdout, reason = "it prints the table")]

#[path = "../tests/recorded.rs"]
mod recorded;
#[path = "../tests/simulation.rs"]
mod simulation;
#[path = "../tests/stolen.rs"]
mod stolen;
#[path = "../tests/transfers.rs"]
mod transfers;
#[path = "../tests/truth.rs"]
mod truth;

fn main() {
    let evaluations = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let evaluations = evaluations.unwrap_or(300);
    println!("{}", truth::table(evaluations));
    println!("{}", truth::table_with_looks(evaluations * 4 / 15));
    println!("{}", stolen::table(evaluations * 10));
    println!("{}", transfers::table(evaluations));
    print!("{}", recorded::table(evaluations));
}
