// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every judgement of a machine, a guest, a plan and the state of an active plan, as rules with ids.
//!
//! - `rule`: [`Rule`], the static part of a judgement; [`all_rules`] returns every rule.
//! - `catalogue`: the knobs as data, for Linux kernels from 5.10 on. A [`Knob`] has a location
//!   ([`Place`]), an expected value ([`Expected`]) for an [`Isolation`], and a reason.
//! - `assess`, `facts`, `check`: compare a machine ([`Readings`]) with the catalogue.
//! - `machine`: the rules that affect figures of an evaluation.
//! - [`guest`]: the settings of a KVM guest and of its host.
//! - `plan`, `state`: judgements of a plan before, and of its state after it is applied.
//! - `changes`, `division`, `pages_reserved`: the changes that applying a plan makes.
//!
//! **Invariant:** this crate does no IO. It reads no file and writes none.
#![forbid(unsafe_code)]

mod assess;
mod cache_steps;
mod catalogue;
mod changes;
mod check;
mod choice;
mod compare;
mod division;
mod division_ways;
mod entry;
mod facts;
mod fix;
pub mod guest;
mod isolation;
mod kernel_command_line;
mod knob;
mod machine;
mod pages_reserved;
mod plan;
pub mod readings;
mod rule;
mod state;

pub use cache_steps::cache_share_text;
pub use catalogue::{all, named};
pub use changes::change_list;
pub use check::{Subject, check};
pub use choice::{DEFAULT, allowed, chosen, is_safety_net, unknown};
pub use compare::{expected_text, marked, satisfies, to_write};
pub use division::{CacheRequest, DividedGroup, Division, Indivisible, cache_requests, divide};
pub use entry::{catalogue_document, entry, rule_entry};
pub use facts::Fact;
pub use isolation::Isolation;
pub use kernel_command_line::{IsolatedCpus, KernelCommandLine};
pub use knob::{Choice, Expected, Format, KernelVersion, Kernels, Knob, Place, When};
pub use machine::figures::{FIGURE_RULES, MANAGER_RULES, figure_findings, findings_of};
pub use plan::{Claim, Claims, PLAN_RULES, PlanContext, check_plan};
pub use readings::{
    Interrupt, KernelThread, LocationValue, ProcessLimits, Reading, Readings, Unread,
};
pub use rule::{Rule, RuleBook, all_rules, rule};
pub use state::{Comparison, STATE_RULES, StateRule, check_state, state_rule};
