// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command.

fn main() -> std::process::ExitCode {
    rampart_model::ExitCode::Failure.into()
}
