// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the catalogue, of changes, of cache shares and of all rules on recorded machines.

mod catalogue;
mod changes;
mod division;
mod fixes;
mod severities;

/// The recorded machines.
const RECORDED: [&str; 5] = ["board", "laptop", "server", "simulated", "virtual-machine"];
