// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks of a hostile root.

use crate::machine::{MODELS, on};

#[test]
fn a_witness_runs() {
    on(&MODELS, |machine| machine.start_witness()?.check());
}
