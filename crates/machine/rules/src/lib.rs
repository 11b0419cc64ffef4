// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every judgement of a machine, a guest, a plan and the state of an active plan, as rules with ids.
//!
//! - `rule`: [`Rule`], the static part of a judgement; [`all_rules`] returns every rule.
//! - `catalogue`: the knobs as data, for Linux kernels from 5.10 on. A [`Knob`] has a location
//!   ([`Location`]), an expected value ([`Expected`]) for an [`Isolation`], and a reason; `choice` has
//!   the values that a plan may name, `knob_names` finds a knob by the kernel's names, `entry` the catalogue as a document.
//! - `distribution`: the commands that install packages and set kernel parameters on a distribution.
//! - `machine`: compares a machine ([`Readings`]) with the catalogue: all of it (`check`), or the
//!   rules that affect figures of an evaluation (`figures`).
//! - [`guest`]: the settings of a KVM guest and of its host.
//! - [`cells`]: a machine that hosts cells. `caller`: the user who runs a command.
//! - `plan`, `state`: judgements of a plan before, and of its state after it is applied.
//! - `real_time_cpus`: which CPUs a machine keeps for real-time work, from every setting.
//! - `changes`: the changes that applying a plan makes, and the shares of caches in ways.
//!
//! **Invariant:** this crate does no IO. It reads no file and writes none.
#![forbid(unsafe_code)]

mod caller;
mod catalogue;
pub mod cells;
mod changes;
mod choice;
mod distribution;
mod entry;
pub mod guest;
mod isolation;
mod knob;
mod knob_names;
mod machine;
mod plan;
mod real_time_cpus;
mod rule;
mod state;

pub use caller::{CONTAINER_NEEDS_ROOT, ISOLATION_NEEDS_ROOT, ROOT_RULES};
pub use catalogue::{all, manager_programs, named};
pub use changes::caches::cache_share_text;
pub use changes::division::{
    CacheRequest, DividedGroup, Division, Indivisible, cache_requests, divide,
};
pub use changes::{DETACHED_OWNERS, change_list};
pub use choice::{DEFAULT, allowed, chosen, is_safety_net};
pub use distribution::{
    Package, SYSTEM_FILES, add_parameters, install, install_real_time_kernel, remove_parameter,
};
pub use entry::{catalogue_document, entry, rule_entry};
pub use isolation::Isolation;
pub use knob::{Choice, Expected, Format, KernelVersion, Kernels, Knob, Location, When};
pub use knob_names::{find, unknown};
pub use machine::check::{Subject, check};
pub use machine::compare::{expected_text, marked, satisfies, to_write};
pub use machine::facts::{Fact, resume_latency_limit};
pub use machine::figures::{FIGURE_RULES, MANAGER_RULES, figure_findings, findings_of};
pub use machine::harm::{HARM, by_harm, harm};
pub use machine::kernel_command_line::{IsolatedCpus, KernelCommandLine};
pub use machine::readings;
pub use machine::readings::{
    InterruptReading, KernelThreadReading, LocationValue, ProcessLimits, ProgramThreadReading,
    Reading, Readings, Unread,
};
pub use plan::{
    Claim, Claims, PLAN_RULES, PlanContext, check_plan, detach_driver_problem, detach_problems,
    rule_of_knob,
};
pub use real_time_cpus::{RealTimeCpus, real_time_cpus, real_time_cpus_of};
pub use rule::{Rule, RuleBook, all_rules, rule};
pub use state::{
    STATE_RULES, StateComparison, StateRule, check_state, state_rule, supervisor_gone,
};
