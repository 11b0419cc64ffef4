// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paper's experiment counts interrupts and costs, on a CPU with page tables of five levels.

use rampart_tests::guest_cases;
use rampart_tests::programs::beside_others;

use super::EXPERIMENT;
use super::machine::{FIVE_LEVELS, Machine};

const SCRIPT: &str =
    "is every_cpu_has_page_tables_of_five_levels \"$(grep -c la57 /proc/cpuinfo)\" 4\n";

fn run() -> Option<String> {
    let _machine = beside_others();
    Some(Machine::boot(&[SCRIPT, EXPERIMENT].concat(), true, FIVE_LEVELS).end())
}

guest_cases! {
    /// Page tables of five levels.
    fn the_experiment_counts_interrupts_and_costs() = run;
    the_driver_is_loaded,
    every_cpu_has_page_tables_of_five_levels,
    an_attached_work_is_interrupted,
    a_detached_work_is_not_interrupted,
    an_attached_loop_is_interrupted,
    a_detached_loop_is_not_interrupted,
    the_calls_of_the_costs_are_counted,
    the_costs_are_compared,
    every_awaited_state_is_reached,
    the_driver_is_unloaded_and_loaded_again,
    the_kernel_log_has_no_error,
}
