// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a Linux machine and changes it, never before the old value is on disk.
//!
//! **Invariant:** this is the only crate that writes to `/proc`, `/sys` and control groups, and
//! each write is preceded by its old value in a journal that has reached the disk. Files of groups
//! that the crate created itself need no record: they are removed with the group. The test
//! `only_host_changes_the_machine` watches the sources of all other crates.
#![deny(unsafe_code)]

mod active_plan;
mod apply;
mod boot_loader;
mod changes;
mod child_process;
mod detached;
mod driver;
mod error;
mod facts;
#[cfg(test)]
mod fake;
mod groups;
mod influence;
mod isolated_cpus;
mod isolation_sources;
mod journal;
mod kernel;
mod kernel_config;
mod lock;
mod mounts;
mod notation;
mod observe;
mod panic;
mod pci_function;
mod placement;
mod policy;
mod processor_times;
mod program_files;
mod real_time;
mod release;
mod replace_file;
mod root;
mod run_program;
mod shield;
mod state_directory;
mod systemd;
mod tasks;
mod tracing;
mod undo;

pub use active_plan::{active_plan, active_plan_of_this_boot};
pub use apply::{
    Application, apply, check_before_restart, check_that_no_plan_is_active, prepare_restart,
};
pub use boot_loader::{BootCommand, BootFileChange, BootLoader, BootPlan, BootReport, plan_boot};
pub use child_process::{OnParentExit, end_child, spawn_detached, spawn_tied, wait_within};
pub use detached::{
    forget_cpu, give_cpu, read_detach_driver, read_detached_cpus, release_detached, take_cpu,
};
pub use driver::{OfferedFirmware, load_module, offer_firmware, release_driver};
pub use error::HostError;
pub use facts::{
    kernel_image_version, network_queues, read_environment, read_figure_findings, read_knob_values,
    read_machine, read_operating_system,
};
pub use groups::control_group_layout;
pub use influence::{
    ClockAdjustment, ClockReadings, CpuTimes, InfluenceReader, InfluenceSnapshot, InterruptState,
    MeasuringThread, ProgramThread,
};
pub use isolated_cpus::reach_isolated_cpus;
pub use observe::{Watch, observe};
pub use panic::PanicTrigger;
pub use pci_function::quiet_pci_function;
pub use placement::{
    PlacementGroup, ThreadPlacement, boot_id, check_that_cpus_are_free, descendants, home_group,
    is_inside, is_leader, place_process, place_this_process, place_thread, process_start,
    process_threads, thread_state,
};
pub use policy::{set_thread_policy, thread_policy};
pub use processor_times::{ProcessorTimes, processor_times, read_smi_count};
pub use program_files::{find_program_file, program_file_directories};
pub use real_time::{RealTimeBudget, diagnose_real_time_policy, free_real_time_budget};
pub use release::release;
pub use replace_file::replace_file;
pub use root::MachineRoot;
pub use run_program::{CapturedOutput, output_within, run_within};
pub use shield::{
    ControlGroup, ControlGroupVersion, Shield, ShieldInUse, active_domain,
    refuse_if_a_plan_is_active, root_missing, shield_in_use,
};
pub use state_directory::StateDirectory;
pub use tracing::{
    KernelTrace, Measurer, Source, TraceInterval, TraceSpan, TracedSample, Tracing, explain,
};
