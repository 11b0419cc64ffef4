// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hostile threads harm neither the kernel nor the CPU, whatever ends its holder.

use rampart_tests::detached_programs::has_compiler;
use rampart_tests::guest_cases;
use rampart_tests::programs::beside_others;

use super::machine::{EPYC_WITH_GUESTS, Kind, Machine, NO_EL2, SKYLAKE, VHE};

const SCRIPT: &str = include_str!("../../../../kernel/detach/tests/hostile.sh");

/// Kernels of `make test-newest` come without their modules.
const NO_MODULES: &str = "the kernel of RAMPART_TEST_MODULES comes without its modules";

/// Returns the script. `has` is what of the modules the machine can use.
fn script(has_guests: &str, has_registers: &str) -> String {
    format!("guests='{has_guests}'\nregisters='{has_registers}'\n{SCRIPT}")
}

/// Returns what the script expects of a module of Debian's kernel.
fn of_module() -> &'static str {
    match std::env::var_os("RAMPART_TEST_MODULES") {
        None => "yes",
        Some(_) => NO_MODULES,
    }
}

fn run_with_smap() -> Option<String> {
    let _machine = beside_others();
    let script = script(of_module(), of_module());
    Some(Machine::boot(&script, true, EPYC_WITH_GUESTS).end())
}

fn run_with_page_table_isolation() -> Option<String> {
    let _machine = beside_others();
    Some(Machine::boot(&script("no", of_module()), false, SKYLAKE).end())
}

/// KVM needs EL2.
fn run_on_arm64(kind: &Kind, guests: &str) -> Option<String> {
    let _machine = beside_others();
    has_compiler("hostile threads on arm64")
        .then(|| Machine::boot_kind(&script(guests, "no"), kind).end())
}

fn run_with_vhe() -> Option<String> {
    run_on_arm64(&VHE, "yes")
}

fn run_without_el2() -> Option<String> {
    run_on_arm64(&NO_EL2, "no")
}

/// The cases of both architectures, and further ones.
macro_rules! hostile {
    ($(#[doc = $text:literal])* $(#[ignore = $reason:literal])? fn $module:ident() = $run:path; $($more:ident),+ $(,)?) => {
        guest_cases! {
            $(#[doc = $text])*
            $(#[ignore = $reason])?
            fn $module() = $run;
            the_driver_is_loaded,
            a_cpu_is_taken,
            poll_reports_the_take,
            a_function_runs,
            a_taken_cpu_is_not_taken_twice,
            a_file_has_one_cpu,
            cpu_4000_is_refused,
            cpu_minus_1_is_refused,
            giving_without_a_cpu_is_refused,
            running_without_a_cpu_is_refused,
            unknown_flags_are_refused,
            running_is_refused_while_not_detached,
            no_run_begins_at_a_kernel_address,
            a_run_without_memory_is_refused,
            leaving_is_refused_while_not_detached,
            an_unknown_request_is_refused,
            writing_online_is_refused,
            suspending_is_refused,
            the_state_can_be_read,
            the_cpu_is_taken,
            another_file_has_no_cpu,
            a_descriptor_is_enough_to_detach,
            a_cpu_has_an_owner,
            the_owner_takes_it_once_a_second_and_no_other,
            no_cpu_has_an_owner,
            a_function_with_system_calls_runs,
            a_detached_thread_is_the_same_thread,
            sched_getcpu_names_the_taken_cpu,
            a_detached_thread_writes_and_reads_a_pipe,
            a_detached_thread_touches_new_memory,
            a_detached_thread_formats_numbers,
            counts_can_be_read,
            system_calls_and_faults_are_counted,
            a_thread_is_attached_again_after_its_function,
            another_thread_is_refused_meanwhile,
            no_replaced_page_is_stale,
            replaced_pages_are_flushed,
            the_signal_has_the_right_registers,
            the_signal_has_the_right_vector_registers,
            the_signal_attached_the_thread,
            a_thread_in_a_system_call_keeps_its_cpu,
            rseq_is_registered,
            rseq_names_no_cpu_while_detached,
            rseq_names_the_cpu_when_attached_again,
            the_pointer_of_a_thread_to_its_own_memory_is_carried,
            a_stack_that_grows_attaches,
            two_threads_of_a_process_are_detached_at_once,
            no_register_of_another_process_is_left,
            a_filter_of_system_calls_holds_while_detached,
            what_prctl_forbids_by_registers_is_refused,
            calls_for_the_thread_itself_attach,
            ppoll_without_a_signal_mask_is_proxied,
            runs_with_calls_that_attach,
            a_signal_during_ppoll_is_handled_attached,
            there_are_huge_pages,
            a_file_in_memory_is_written,
            a_file_of_huge_pages_is_written,
            another_thread_is_to_provide_a_page,
            a_detached_thread_waits_for_its_page,
            sigkill_ends_a_thread_that_waits_for_its_page,
            a_child_has_a_copy_and_the_thread_goes_on,
            every_signal_is_handled,
            a_thread_detaches_again_after_a_signal,
            a_process_runs_detached,
            another_process_is_refused_meanwhile,
            sigstop_stops_a_detached_process,
            sigcont_continues_a_detached_process,
            a_control_group_is_frozen,
            the_freezer_stops_a_detached_process,
            a_control_group_is_thawed,
            a_thawed_process_continues,
            sigkill_ends_a_detached_process,
            do_hlt,
            read_data,
            write_data,
            read_code,
            jump_code,
            read_kernel,
            jump_nowhere,
            write_null,
            jump_stack,
            stack_null_call,
            stack_data_call,
            stack_data_push,
            overflow_stack,
            exit_detached,
            end_thread,
            execute,
            fork_detached,
            vfork_detached,
            spawn_detached,
            modify_code,
            code_unmapped,
            code_protected,
            code_discarded,
            code_moved,
            endless,
            endless_calls,
            endless_faults,
            every_system_call_can_be_refused,
            every_system_call_can_be_proxied,
            no_flag_masks_interrupts,
            random_programs_do_no_harm,
            no_interrupt_arrived,
            the_cpu_is_given_back,
            the_file_has_no_cpu,
            cpu_is_given_back_after_exit,
            the_cpu_is_given_back_before_the_other_program_ends,
            cpu_is_given_back_after_another_program,
            cpu_is_given_back_after_abort,
            cpu_is_given_back_after_sigquit,
            cpu_is_given_back_after_sigkill,
            cpu_is_given_back_after_sigkill_while_stopped,
            cpu_is_given_back_after_sigkill_under_a_debugger,
            a_debugger_stops_the_thread,
            the_thread_goes_on_without_a_debugger,
            the_debugger_has_no_cpu,
            cpu_is_given_back_after_sigkill_with_a_child,
            cpu_is_given_back_after_no_memory,
            linux_keeps_a_cpu,
            several_processes_run_detached_at_once,
            every_cpu_is_given_back,
            every_awaited_state_is_reached,
            the_driver_is_unloaded_and_loaded_again,
            the_kernel_log_has_no_error,
            $($more),+
        }
    };
}

/// The cases of x86-64, and further ones.
macro_rules! hostile_on_x86_64 {
    ($(#[doc = $text:literal])* fn $module:ident() = $run:path; $($more:ident),+ $(,)?) => {
        hostile! {
            $(#[doc = $text])*
            fn $module() = $run;
            a_permitted_i_o_port_attaches,
            a_segment_of_the_local_descriptor_table_attaches,
            do_cli,
            do_ud2,
            do_int3,
            do_icebp,
            do_int_2,
            do_int_8,
            do_int_14,
            do_int_18,
            do_int_32,
            do_int_128,
            do_int_255,
            do_sysenter,
            do_sysret,
            do_swapgs,
            do_vmcall,
            do_vmmcall,
            do_rdpmc,
            do_rdmsr,
            do_wrmsr,
            do_read_cr3,
            do_write_cr3,
            do_write_dr7,
            do_in,
            do_out,
            do_wbinvd,
            do_invlpg,
            do_lidt,
            do_lgdt,
            do_ltr,
            do_xsetbv,
            do_divide,
            do_mwait,
            write_apic,
            call_vsyscall,
            jump_not_canonical,
            jump_end,
            stack_not_canonical_call,
            stack_odd_fault,
            stack_null_int,
            stack_selector_call,
            stack_selector_int,
            flag_step,
            flag_step_stack,
            flag_alignment,
            flag_direction,
            flag_iopl,
            bad_mxcsr,
            bad_fs_base,
            kernel_fs_base,
            float_exception,
            all_selectors,
            restore_garbage,
            registers_can_be_read,
            a_cpu_with_read_registers_serves,
            linux_has_no_access_meanwhile,
            linux_has_access_again,
            registers_are_restored,
            $($more),+
        }
    };
}

/// The cases of arm64, and further ones.
macro_rules! hostile_on_arm64 {
    ($(#[doc = $text:literal])* $(#[ignore = $reason:literal])? fn $module:ident() = $run:path; $($more:ident),* $(,)?) => {
        hostile! {
            $(#[doc = $text])*
            $(#[ignore = $reason])?
            fn $module() = $run;
            checks_of_memory_tags_are_refused,
            do_svc_1,
            do_hvc,
            do_smc,
            do_cpu_off,
            do_brk,
            do_udf,
            do_eret,
            do_dcps1,
            do_dcps3,
            do_wfi,
            do_wfe,
            do_mask,
            do_unmask,
            do_write_daif,
            do_read_daif,
            do_spsel,
            do_pan,
            do_read_id,
            do_read_sctlr,
            do_write_sctlr,
            do_write_ttbr,
            do_write_vbar,
            do_write_vbar_2,
            do_write_hcr,
            do_write_elr,
            do_tlbi,
            do_ic,
            do_dc_isw,
            do_dc_ivac,
            do_dc_civac_null,
            do_dc_zva_null,
            do_dc_zva_stub,
            do_at,
            do_pmu,
            do_pmuserenr,
            do_timer,
            do_virtual_timer,
            do_read_counter,
            do_gic_acknowledge,
            do_gic_mask,
            do_gic_send,
            do_debug_channel,
            do_mdscr,
            do_osdlr,
            do_tpidrro,
            do_thread_pointer,
            do_sve,
            do_sme,
            do_sme_pointer,
            do_keys,
            do_write_key,
            do_bad_key,
            do_tags,
            do_tag_checks_off,
            do_branch_type,
            do_random,
            do_step_flag,
            do_fpcr,
            do_memory_copy,
            do_exclusive,
            do_st64b,
            do_tstart,
            write_gic,
            jump_kernel,
            unprivileged_read,
            prefetch_data,
            jump_middle,
            jump_tagged,
            jump_odd,
            read_unaligned,
            read_end,
            stack_odd,
            stack_odd_call,
            stack_null_fault,
            endless_wfe
            $(, $more)*
        }
    };
}

hostile_on_x86_64! {
    /// EPYC, PREEMPT_RT, with guests of KVM.
    fn hostile_threads_harm_neither_kernel_nor_cpu() = run_with_smap;
    a_guest_of_kvm_in_the_process,
    a_thread_attaches_to_run_a_guest,
}

hostile_on_x86_64! {
    /// Skylake with page-table isolation and protection keys, without SMAP and without PREEMPT_RT.
    fn hostile_threads_harm_no_kernel_with_page_table_isolation() = run_with_page_table_isolation;
    flag_nested,
    far_user32,
    far_kernel,
    far_task,
    far_ldt,
    return_kernel,
    protection_keys_belong_to_the_thread,
}

hostile_on_arm64! {
    /// EL2 with VHE, pointer authentication, tags, SVE and SME, with guests of KVM.
    fn hostile_threads_on_arm64_harm_neither_kernel_nor_cpu() = run_with_vhe;
    a_guest_of_kvm_in_the_process,
    a_thread_attaches_to_run_a_guest,
}

hostile_on_arm64! {
    /// EL1 and page-table isolation.
    #[ignore = "takes a minute more; make test-long runs it"]
    fn hostile_threads_on_arm64_without_el2_harm_neither_kernel_nor_cpu() = run_without_el2;
}
