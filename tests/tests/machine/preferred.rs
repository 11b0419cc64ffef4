// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exclusive use of the machine, with priority over programs that are not part of the test: an evaluation rejects a
//! run whose load used less than a third of its CPU, and its programs share the housekeeping CPU with all others.

use std::fs;

use rampart_tests::programs::{self, Machine, beside_others};

/// Nice value of the test and of the programs that it starts: nine times the CPU time of an ordinary program
/// (sched(7)). `rampart` gives its loads the same.
const NICE: i32 = -10;
/// Nice value of the session among all sessions. The one of a process counts only within its session (sched(7), "The
/// autogroup feature").
const SESSION: &str = "/proc/self/autogroup";

/// Use of the machine, and the priority of the session until then.
#[derive(Debug)]
#[must_use]
pub(crate) struct PreferredMachine {
    session: Option<String>,
    _machine: Machine,
}

impl Drop for PreferredMachine {
    fn drop(&mut self) {
        if let Some(nice) = &self.session {
            let _ = fs::write(SESSION, nice);
        }
    }
}

/// Waits for exclusive use of the machine, and prefers this process and those that it starts. Returns `None`, and
/// reports the reason, without root or with fewer CPUs.
pub(crate) fn machine(test: &str, cpus: usize) -> Option<PreferredMachine> {
    let machine = programs::machine(test, cpus)?;
    prefer_own_programs();
    // `/autogroup-25 nice 0`; a kernel without the feature has no such file.
    let session = fs::read_to_string(SESSION).ok();
    let session = session.and_then(|text| Some(text.trim().rsplit_once(' ')?.1.to_owned()));
    if session.is_some() {
        let _ = fs::write(SESSION, NICE.to_string());
    }
    Some(PreferredMachine {
        session,
        _machine: machine,
    })
}

/// Waits for a place among the simulated machines, and prefers this one to other programs, as far as this user may:
/// its emulated CPUs share real ones with them.
pub(crate) fn simulated_machine() -> Machine {
    let machine = beside_others();
    prefer_own_programs();
    machine
}

/// Prefers this thread and the programs that it starts to other programs of the session.
pub(crate) fn prefer_own_programs() {
    // Without the privilege they are ordinary programs.
    let _ = rustix::process::setpriority_process(None, NICE);
}
