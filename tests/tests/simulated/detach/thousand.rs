// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CPU is taken and given back a thousand times, and three CPUs run 20,000 random programs, others each time. A failure
//! names its seed.

use std::time::SystemTime;

use rampart_tests::detached_programs::has_compiler;
use rampart_tests::guest_cases;
use rampart_tests::programs::beside_others;

use super::machine::{EPYC_TO_FUZZ, Kind, Machine, NO_EL2, NO_VHE, SKYLAKE_TO_FUZZ, VHE};

/// Random programs of each of the three CPUs.
const PROGRAMS: u32 = 6_667;

fn script() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(0, |time| time.as_secs());
    format!(
        "/detach-test repeat 2 1000\n\
         for cpu in 1 2 3; do /detach-test fuzz $cpu {PROGRAMS} $(({seed} + 1000000 * cpu)) & done\n\
         wait\n"
    )
}

fn run_with_smap() -> Option<String> {
    let _machine = beside_others();
    Some(Machine::boot(&script(), true, EPYC_TO_FUZZ).end())
}

fn run_with_page_table_isolation() -> Option<String> {
    let _machine = beside_others();
    Some(Machine::boot(&script(), false, SKYLAKE_TO_FUZZ).end())
}

fn run_on_arm64(kind: &Kind) -> Option<String> {
    let _machine = beside_others();
    has_compiler("a thousand detached threads on arm64")
        .then(|| Machine::boot_kind(&script(), kind).end())
}

fn run_without_vhe() -> Option<String> {
    run_on_arm64(&NO_VHE)
}

fn run_without_el2() -> Option<String> {
    run_on_arm64(&NO_EL2)
}

fn run_with_vhe() -> Option<String> {
    run_on_arm64(&VHE)
}

macro_rules! thousand {
    ($(#[doc = $text:literal])* fn $module:ident() = $run:path) => {
        guest_cases! {
            $(#[doc = $text])*
            #[ignore = "it takes hours; make test-long runs it"]
            fn $module() = $run;
            the_driver_is_loaded,
            a_cpu_is_taken_and_given_back_again,
            random_programs_do_no_harm,
            every_awaited_state_is_reached,
            the_driver_is_unloaded_and_loaded_again,
            the_kernel_log_has_no_error,
        }
    };
}

thousand! {
    /// EPYC, PREEMPT_RT.
    fn a_cpu_is_taken_and_given_back_a_thousand_times() = run_with_smap
}
thousand! {
    /// Skylake, without PREEMPT_RT.
    fn a_cpu_with_page_table_isolation_is_taken_a_thousand_times() = run_with_page_table_isolation
}
thousand! {
    /// EL2 without VHE.
    fn a_cpu_of_arm64_is_taken_and_given_back_a_thousand_times() = run_without_vhe
}
thousand! {
    /// EL1.
    fn a_cpu_of_arm64_without_el2_is_taken_a_thousand_times() = run_without_el2
}
thousand! {
    /// EL2 with VHE.
    fn a_cpu_of_arm64_with_vhe_is_taken_a_thousand_times() = run_with_vhe
}
