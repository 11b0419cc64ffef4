// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meters beside their peers.

fn main() {}
