// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `rampart detach`, and a plan, give a program CPUs to detach to.

use rampart_tests::guest_cases;
use rampart_tests::programs::beside_others;

use super::machine::{EPYC, Machine};

const SCRIPT: &str = concat!(
    include_str!("../../../../kernel/detach/tests/command.sh"),
    include_str!("../../../../kernel/detach/tests/plan.sh")
);

fn run() -> Option<String> {
    let _machine = beside_others();
    Some(Machine::boot(SCRIPT, true, EPYC).end())
}

guest_cases! {
    /// The shell runs what a user does.
    fn the_command_and_a_plan_give_a_program_cpus_to_detach_to() = run;
    the_driver_is_loaded,
    without_a_taken_cpu_the_list_is_empty,
    the_list_names_the_program_that_runs,
    the_document_names_state_and_holder,
    the_document_counts_no_interrupt,
    a_taken_cpu_is_not_taken_twice,
    the_command_gives_a_cpu_back,
    the_loop_continues_under_linux,
    a_release_gives_a_cpu_back,
    the_loop_continues_after_the_release,
    a_program_without_privileges_detaches,
    no_journal_is_left,
    a_user_takes_no_cpu_before_the_plan,
    the_plan_is_checked,
    the_plan_is_applied,
    the_plan_gives_its_cpus_to_the_owner,
    the_owner_detaches_without_root,
    the_owner_takes_no_other_cpu,
    another_user_takes_no_cpu_of_the_owner,
    an_owner_does_not_write_owners,
    wrong_owners_are_refused,
    the_list_names_the_domain,
    a_program_of_the_domain_detaches,
    a_program_of_the_domain_detaches_to_one_cpu,
    no_program_is_moved_to_the_domain,
    the_domain_is_up,
    the_list_names_the_program_of_the_domain,
    the_status_has_no_drift,
    the_loop_survives_its_supervisor,
    a_killed_loop_of_the_domain_gives_its_cpu_back,
    the_domain_is_up_again,
    the_plan_is_not_released_while_its_program_runs,
    the_domain_is_down,
    the_plan_is_released,
    the_release_takes_the_cpus_from_the_owner,
    a_user_takes_no_cpu_after_the_release,
    every_awaited_state_is_reached,
    the_driver_is_unloaded_and_loaded_again,
    the_kernel_log_has_no_error,
}
