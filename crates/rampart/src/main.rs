// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command: arguments, dispatch, exit code. Everything else is in the libraries.

mod arguments;
mod commands;
mod failure;
mod output;
mod progress;
mod signals;

use crate::arguments::Command;

fn main() -> std::process::ExitCode {
    let arguments = arguments::parse();
    // Before any child process inherits the restricted affinity.
    rampart_host::reach_isolated_cpus();
    let colour = output::choose_colour(arguments.color);
    if let Some(result) = commands::on::elsewhere(&arguments.command, colour) {
        return match result {
            Ok(code) => code,
            Err(failure) => failure.report().into(),
        };
    }
    let result = match arguments.command {
        Command::Sim(sim) => {
            return match commands::sim::run(&sim) {
                Ok(code) => code,
                Err(failure) => failure.report().into(),
            };
        }
        Command::Evaluate(evaluate) => commands::evaluate::run(&evaluate, colour),
        Command::Measure(measure) => commands::measure::run(&measure),
        Command::Block(block) => commands::block::run(&block),
        Command::Blocktest(blocktest) => commands::blocktest::run(&blocktest),
        Command::Report(report) => commands::report::run(&report, colour),
        Command::Cell(cell) => commands::cell::run(&cell),
        Command::Detach(detach) => commands::detach::run(&detach),
        Command::Check(check) => commands::check::run(&check, colour),
        Command::Knobs(knobs) => commands::knobs::run(&knobs, colour),
        Command::Domains(domains) => commands::domains::run(&domains),
        Command::Plan(plan) => commands::plan::run(&plan),
        Command::Run(run) => commands::run::run(&run),
        Command::Move(moving) => commands::moving::run(&moving),
        Command::Shield(shield) => commands::shield::run(&shield),
        Command::Up(up) => commands::up::run_up(&up),
        Command::Down(down) => commands::up::run_down(&down),
        Command::Apply(apply) => commands::apply::run(&apply, colour),
        Command::Status(status) => commands::status::run(&status, colour),
        Command::Import(import) => commands::import::run(&import),
        Command::Release(release) => commands::release::run(&release),
        Command::Export(export) => commands::export::run(&export),
        Command::Schema(schema) => commands::documents::schema(&schema),
        Command::Completions(completions) => commands::documents::completions(&completions),
        Command::Man(man) => commands::documents::man(&man),
    };
    match result {
        Ok(code) => code.into(),
        Err(failure) => failure.report().into(),
    }
}
