// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What commands need of the user who runs them.

use rampart_model::Severity;

use crate::{Rule, RuleBook};

/// CPUs are isolated by root.
pub const ISOLATION_NEEDS_ROOT: Rule = Rule {
    id: "isolation-needs-root",
    book: RuleBook::Caller,
    severity: Severity::Warning,
    title: "Root runs a command that isolates CPUs",
    reason: "Only root may change control groups, interrupts and workqueues. Without root the threads are only bound to their CPUs.",
    source: "Documentation/admin-guide/cgroup-v2.rst; sched(7)",
    waivable: false,
};

/// Threads of containers are placed by root.
pub const CONTAINER_NEEDS_ROOT: Rule = Rule {
    id: "container-needs-root",
    book: RuleBook::Caller,
    severity: Severity::Error,
    title: "Root runs a command that places the threads of a container",
    reason: "The threads belong to another user, and only root may set their CPUs and policy.",
    source: "sched_setaffinity(2), sched_setscheduler(2)",
    waivable: false,
};

/// The rules that ask for root.
pub const ROOT_RULES: [Rule; 2] = [ISOLATION_NEEDS_ROOT, CONTAINER_NEEDS_ROOT];
