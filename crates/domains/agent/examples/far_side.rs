// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent without `rampart-meter`, for the tests.

fn main() {
    let options = rampart_agent::ServeOptions::parse(std::env::args_os().skip(1));
    options
        .and_then(|options| rampart_agent::serve(&options))
        .expect("served");
}
