// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the agent without `rampart-meter`, for tests.

fn main() {
    let options = rampart_agent::ServeOptions::parse(std::env::args_os().skip(1));
    options
        .and_then(|options| rampart_agent::serve(&options))
        .expect("served");
}
