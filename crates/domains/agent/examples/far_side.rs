// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The far side alone, for the tests: what `rampart-meter agent` does.

fn main() {
    let options = rampart_agent::ServeOptions::parse(std::env::args_os().skip(1));
    options
        .and_then(|options| rampart_agent::serve(&options))
        .expect("served");
}
