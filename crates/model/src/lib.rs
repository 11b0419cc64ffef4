// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The types of Rampart's documents: units, sets of CPUs, policies, meter settings, machines,
//! plans, records, evaluations, verdicts.
//!
//! **Invariant:** this crate does no IO. It reads no file and no clock, and starts no process.
//!
//! Without the feature `std` it has only [`Nanos`] and [`SignedNanos`], for measuring engines
//! without an operating system.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
mod allocation;
#[cfg(feature = "std")]
mod application;
#[cfg(feature = "std")]
mod blocker;
#[cfg(feature = "std")]
mod blocking;
#[cfg(feature = "std")]
mod cell;
#[cfg(feature = "std")]
mod cell_list;
#[cfg(feature = "std")]
mod check;
#[cfg(feature = "std")]
mod condition;
#[cfg(feature = "std")]
mod cpu_list;
#[cfg(feature = "std")]
mod cpu_set;
#[cfg(feature = "std")]
mod detached;
#[cfg(feature = "std")]
pub mod device_tree;
#[cfg(feature = "std")]
mod distribution;
#[cfg(feature = "std")]
mod domain;
#[cfg(feature = "std")]
mod effect;
#[cfg(feature = "std")]
mod environment;
#[cfg(feature = "std")]
mod evaluation;
#[cfg(feature = "std")]
mod exit_code;
#[cfg(feature = "std")]
mod finding;
#[cfg(feature = "std")]
mod guest;
#[cfg(feature = "std")]
mod isolation_source;
#[cfg(feature = "std")]
mod knob;
#[cfg(feature = "std")]
mod machine;
#[cfg(feature = "std")]
mod meter;
#[cfg(feature = "std")]
mod nearest_word;
#[cfg(feature = "std")]
mod observation;
#[cfg(feature = "std")]
mod placement;
#[cfg(feature = "std")]
mod plan;
#[cfg(feature = "std")]
mod policy;
#[cfg(feature = "std")]
mod record;
#[cfg(feature = "std")]
mod release;
#[cfg(feature = "std")]
mod span;
#[cfg(feature = "std")]
mod status;
#[cfg(feature = "std")]
mod supervision;
#[cfg(feature = "std")]
mod topology;
#[cfg(feature = "std")]
mod transfer;
mod units;
#[cfg(feature = "std")]
mod units_text;
#[cfg(feature = "std")]
mod unwanted_activity;
#[cfg(feature = "std")]
mod verdict;
#[cfg(feature = "std")]
mod vital_thread;
#[cfg(feature = "std")]
mod words;

#[cfg(feature = "std")]
pub use allocation::{
    Allocation, AllocationGroup, BandwidthResource, CacheControl, CacheResource, CacheWays,
    ResourceInstance, Schemata, WayMask,
};
#[cfg(feature = "std")]
pub use application::{
    APPLICATION_SCHEMA_VERSION, ActiveDomain, ActivePlan, ActivePlanState, ChangeList,
    ChangeLocation, ChangeStep, ChangeTarget, StepAction, StepKind,
};
#[cfg(feature = "std")]
pub use blocker::{
    BLOCKER_PROTOCOL_VERSION, BlockKind, BlockSettings, BlockSpan, BlockSpread, BlockerEvent,
    BlockerRequest,
};
#[cfg(feature = "std")]
pub use blocking::{
    BLOCKING_SCHEMA_VERSION, BLOCKTEST_SCHEMA_VERSION, Blocking, Blocktest, BlocktestCpu,
    BlocktestTransfer,
};
#[cfg(feature = "std")]
pub use cell::{CellExitReport, CellExits, CellPayload};
#[cfg(feature = "std")]
pub use cell_list::{CellListEntry, CpuReport, ExitCount, FailureReport, MemoryReport, RefusedDma};
#[cfg(feature = "std")]
pub use check::{
    CHECK_SCHEMA_VERSION, Check, CheckCounts, CheckFinding, CheckLocation, CheckState,
    CheckedMachine, NotRead,
};
#[cfg(feature = "std")]
pub use condition::{Condition, LoadKind, LoadLocation, ParseConditionError};
#[cfg(feature = "std")]
pub use cpu_list::CpuList;
#[cfg(feature = "std")]
pub use cpu_set::{CpuId, CpuSet, ParseCpuSetError};
#[cfg(feature = "std")]
pub use detached::{DetachDriver, DetachedCounts, DetachedCpu, DetachedHolder, DetachedState};
#[cfg(feature = "std")]
pub use distribution::{Bucket, Distribution, SAMPLES_BEYOND};
#[cfg(feature = "std")]
pub use domain::{
    Availability, ContainerEngine, DomainCpus, DomainKernel, DomainKind, DomainProgram,
    DomainSelection, EffectiveSettings, GuestRole, InterruptMove, IsolationMechanism,
    KindProperties, ParseDomainError, ShieldReport,
};
#[cfg(feature = "std")]
pub use effect::{
    ChangeEffect, ChangeOutcome, EffectOutcome, EffectRatio, PlanChange, PlanEffect, PlanEffects,
    PlanVariant, VariantRecord,
};
#[cfg(feature = "std")]
pub use environment::{
    Environment, HugePages, Interrupt, KernelThread, NetworkQueues, ResourceLimits,
};
#[cfg(feature = "std")]
pub use evaluation::{
    Comparison, ComparisonEntry, ComparisonRow, EVALUATION_SCHEMA_VERSION, EvaluatedDomain,
    Evaluation, EvaluationPart, EvaluationSettings, EvaluationState, MeasuredPlan, NegativeControl,
    NotMeasured, ReachedDeadlines, VariantSettings,
};
#[cfg(feature = "std")]
pub use exit_code::ExitCode;
#[cfg(feature = "std")]
pub use finding::{Finding, Severity, fixes};
#[cfg(feature = "std")]
pub use guest::{Accelerator, ClockRelation, GuestKnob, GuestReport, GuestThread, GuestThreadRole};
#[cfg(feature = "std")]
pub use isolation_source::{IsolationSource, IsolationSourceKind, IsolationStrength};
#[cfg(feature = "std")]
pub use knob::{
    KNOB_CATALOGUE_SCHEMA_VERSION, KnobCatalogue, KnobEffect, KnobEntry, KnobGroup, KnobOpinion,
    RuleEntry,
};
#[cfg(feature = "std")]
pub use machine::{
    Cache, CacheKind, ClockSource, Cpu, FrequencyFacts, GROUP_BUDGETS_OFF, IdleState, Machine,
    MemoryNode, OperatingSystem, PreemptionModel, SIMULATED_BOARD, SystemManagementInterrupts,
    ThrottlingFacts, Topology, Virtualisation,
};
#[cfg(feature = "std")]
pub use meter::{
    Batch, METER_PROTOCOL_VERSION, MeterEvent, MeterKind, MeterReady, MeterRequest, MeterSettings,
    ParseMeterKindError, Phase, PlacedBy, Refusal, RefusalKind, Series, SeriesBatch, ThreadReady,
};
#[cfg(feature = "std")]
pub use nearest_word::nearest;
#[cfg(feature = "std")]
pub use observation::{
    Observation, ObservedCount, ObservedCpu, ObservedGroup, ObservedInterrupt, ObservedIsolation,
    ObservedPartition, ObservedProgram, ObservedThread,
};
#[cfg(feature = "std")]
pub use placement::{PlacedThread, ThreadState};
#[cfg(feature = "std")]
pub use plan::{
    BootSection, ByteSize, CacheShare, CacheSharing, CellNetwork, CellOptions, CellRegion,
    CellWriter, ContainerSource, CpuOwnership, CpuRequest, CpuRole, CpuSelector, Enforcement,
    GuestMemory, GuestPages, InterruptMatch, InterruptOwnership, KnobAction, KnobChoice,
    MachineSection, NodeSharing, PLAN_SCHEMA_VERSION, ParseByteSizeError, Plan, PlanFinding,
    PlannedDomain, PlannedPolicy, PlannedStandby, Reboot, ResolvedDomain, ResolvedPlan, Restart,
    SmtPolicy, ThreadRule, VirtualCpuRequest, VirtualCpus, Waiver,
};
#[cfg(feature = "std")]
pub use policy::{ParsePolicyError, SchedulingPolicy};
#[cfg(feature = "std")]
pub use record::{
    Cause, CauseKind, CpuRecord, EffectivePlacement, ExplainedWorst, Exposure, LoadRecord,
    LocatedWorst, MEASUREMENT_SCHEMA_VERSION, Measurement, MeterDetail, Record, Run, SeriesRecord,
    StressorRecord, ThreadCounters, ThreadOutcome, WarmUp, WorstEvent,
};
#[cfg(feature = "std")]
pub use release::{ReleaseReport, Restored};
#[cfg(feature = "std")]
pub use span::AddressSpan;
#[cfg(feature = "std")]
pub use status::{
    CountStatus, CpuStatus, DomainStatus, NoiseSource, NoiseSourceKind, ProgramState,
    ProgramStatus, STATUS_SCHEMA_VERSION, Status, StatusDivision, StatusFinding, StatusPlan,
    StatusSubject, ThreadStatus,
};
#[cfg(feature = "std")]
pub use supervision::{
    LastExit, ProcessIdentity, SUPERVISION_SCHEMA_VERSION, SupervisedContainer, SupervisedDomain,
    SupervisedState,
};
#[cfg(feature = "std")]
pub use topology::BOOT_CPU;
#[cfg(feature = "std")]
pub use transfer::{
    Bench, BlocksMade, CrashRecord, CrashWitness, Disturbance, DisturbanceKind,
    ParseDisturbanceError, Participant, RecordedAfter, Side, SignForm, SignInMemory, SignPath,
    Timeline, TransferGroup, TransferRecord, TransferSettings, Watched, Window,
};
pub use units::{Nanos, SignedNanos};
#[cfg(feature = "std")]
pub use units_text::ParseNanosError;
#[cfg(feature = "std")]
pub use unwanted_activity::{InterruptSort, UnwantedActivity, is_device_softirq};
#[cfg(feature = "std")]
pub use verdict::{
    Answers, Crossed, Interval, OtherPrograms, QuantileAnswer, Question, StallAnswer, StolenAnswer,
    Verdict, VerdictFigures, VerdictOutcome,
};
#[cfg(feature = "std")]
pub use vital_thread::VitalThread;
#[cfg(feature = "std")]
pub use words::{clean, factor, grouped, plural, quantile_name, wrapped};
