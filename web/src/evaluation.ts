// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by crates/report/tests/fixtures.rs from the model; change the model instead.

/** Everything that was measured and concluded. */
export type Evaluation = {
  /** What this machine can host, every kind. */
  availability: Availability[];
  /** The command line that made it. */
  command: string[];
  /** The answers at a glance. */
  comparison: Comparison;
  /** What the machine weakens for all records. */
  findings: Finding[];
  /** The machine. */
  machine: Machine;
  /** What was not measured, and why. */
  not_measured: NotMeasured[];
  /** What was set out to do. */
  plan: ExperimentPlan;
  /** What was measured. */
  records: Record[];
  /** Runs made and runs planned. */
  runs: [number, number];
  /** [`EVALUATION_SCHEMA_VERSION`]. */
  schema_version: number;
  /** When it began, RFC 3339. */
  started: string;
  /** How far it came. */
  state: EvaluationState;
  /** Version of the tool that wrote it. */
  tool_version: string;
  /** What follows from it. */
  verdicts: Verdict[];
  /** When this document was written, RFC 3339. */
  written: string;
};

/** Whether this machine can host a kind of domain, and if not, why and what would change it. */
export type Availability = {
  /** Whether it can be measured here and now. */
  available: boolean;
  /** What it would be here, in a sentence: the wall, the program that runs it. */
  description: string;
  /** The domain. */
  domain: DomainSelection;
  /** The reasons against it, or weaknesses that leave it possible. */
  findings: Finding[];
};

/** One bucket: its lowest value and how many samples fell into it. `[value, count]` in JSON. */
export type Bucket = [Nanos, number];

/** One cache. */
export type Cache = {
  /** What it holds. */
  kind: CacheKind;
  /** 1 is nearest to the core. */
  level: number;
  /** The CPUs that share it. */
  shared_by: CpuSet;
  /** Bytes. */
  size: number;
};

/** What a cache holds. */
export type CacheKind = "data" | "instruction" | "unified";

/** The clock source that the kernel keeps time with. */
export type ClockSource = {
  /** All that could be used. */
  available: string[];
  /** The one in use, for example `tsc`, `arch_sys_counter`, `hpet`. */
  current: string;
};

/** The answers at a glance. */
export type Comparison = {
  /** The table. */
  rows: ComparisonRow[];
  /** One sentence for each domain, in the plan's order: domain name, sentence. */
  sentences: ([string, string])[];
};

/** One answer of the comparison. */
export type ComparisonCell = {
  /** A word or two: `yes`, `no`, `not always`, `limited`, `not measured` … */
  answer: string;
  /** The domain. */
  domain: string;
  /** The sentence that explains it. */
  reason: string;
  /** The verdicts it rests on; empty for an answer that follows from how the kind is built. */
  verdicts: string[];
};

/** One question asked of every domain. */
export type ComparisonRow = {
  /** One cell for each domain of the plan, in its order. */
  cells: ComparisonCell[];
  /** The question. */
  question: string;
};

/** A load and its place. Written `idle`, `cpu@others`, `cache@same`. */
export type Condition = {
  /** What runs. */
  load: LoadKind;
  /** Where; none for idle. */
  place?: LoadPlace | null;
};

/** What runs a container. */
export type ContainerEngine = "embedded" | "podman" | "docker";

/** One logical CPU. */
export type Cpu = {
  /** Relative capacity where cores differ (`cpu_capacity`, or P/E kind on x86). */
  capacity?: number | null;
  /** Physical core within the package. */
  core?: number | null;
  /** Its number. */
  id: CpuId;
  /** Memory node. */
  node?: number | null;
  /** Package (socket). */
  package?: number | null;
  /** The CPUs that share its core, itself among them. */
  siblings: CpuSet;
};

/** The number that Linux gives a logical CPU. */
export type CpuId = number;

/** One CPU's part of a record. */
export type CpuRecord = {
  /** The CPU. */
  cpu: CpuId;
  /** Periods that passed without a sample. */
  missed: number;
  /** Samples of the primary series over the deadline. */
  over_deadline: number;
  /** The primary series first. */
  series: SeriesRecord[];
  /** The worst warm-up sample of all repetitions. */
  warm_up_max?: Nanos | null;
};

/** CPUs as the kernel's list, for example `0-3,8`; empty for none */
export type CpuSet = string;

/** How often each time was seen. Cannot overflow: any [`Nanos`] has a bucket. */
export type Distribution = {
  /** The buckets that hold samples, in rising order. */
  buckets: Bucket[];
  /** The exact largest; none without samples. */
  max?: Nanos | null;
  /** The exact smallest; none without samples. */
  min?: Nanos | null;
  /** How many samples it holds. */
  samples: number;
};

/** The kinds, from the weakest wall to the strongest. */
export type DomainKind = "host" | "task" | "container" | "vm" | "detached" | "cell";

/** One domain of the matrix. */
export type DomainPlan = {
  /** The CPUs it measures on. */
  cpus: CpuSet;
  /** What it would be here, in a sentence. */
  description: string;
  /** Its name; the kind's word, unless one kind occurs twice. */
  name: string;
  /** What it is. */
  selection: DomainSelection;
};

/** A domain that the user names: `host`, `task`, `container`, `container:podman`. */
export type DomainSelection = {
  /** For a container: what runs it. */
  engine?: ContainerEngine | null;
  /** The kind. */
  kind: DomainKind;
};

/** Placement that was verified, not assumed. */
export type EffectivePlacement = {
  /** Affinity, from `sched_getaffinity(2)`. */
  affinity: CpuSet;
  /** The clock source of the kernel that the thread ran on. */
  clock_source: string;
  /** CPUs that samples were taken on. */
  cpus_seen: CpuSet;
  /** Where the rest of the program ran. */
  housekeeping: CpuSet;
  /** Whether all memory was locked. */
  memory_locked: boolean;
  /** Samples that were taken on another CPU than the one before. */
  migrations: number;
  /** Policy and priority, from `sched_getattr(2)` at the start and at the end. */
  policy: SchedulingPolicy;
};

/** How far an evaluation came. */
export type EvaluationState = "running" | "ended-early" | "complete";

/** What an evaluation sets out to do. */
export type ExperimentPlan = {
  /** The conditions in the order of the report. */
  conditions: Condition[];
  /** The deadline that verdicts use. */
  deadline: Nanos;
  /** Whether the user named it; otherwise it is the meter's own period. */
  deadline_from_user: boolean;
  /** The domains in the order of the report. */
  domains: DomainPlan[];
  /** What this machine makes weaker than it could be, for example a single CPU. */
  findings: Finding[];
  /** The CPUs that ordinary work keeps. */
  housekeeping: CpuSet;
  /** The meters; the first is the one that the page leads with. */
  meters: MeterPlan[];
  /** How often each cell of the matrix is measured; repetitions of different cells alternate. */
  repetitions: number;
  /** Measured time of one repetition. */
  run_duration: Nanos;
  /** Seed of the order of runs and of the resampling. */
  seed: number;
  /** Total time asked for. */
  total: Nanos;
};

/** What a record rests on. */
export type Exposure = {
  /** CPUs measured at once. */
  cpus: number;
  /** Time measured, summed over repetitions, not over CPUs. */
  duration: Nanos;
  /** Periods that passed without a sample. */
  missed: number;
  /** Valid repetitions. */
  runs: number;
  /** Samples of the primary series, all CPUs together. */
  samples: number;
};

/** One thing that is not as it should be: the place, the present value, the needed one and what mends it. */
export type Finding = {
  /** The command or change that mends it. */
  mend?: string | null;
  /** The value that would do. */
  needed?: string | null;
  /** What it is about: a file, a CPU, a domain, a setting. */
  place: string;
  /** The value found there. */
  present?: string | null;
  /** How much it matters. */
  severity: Severity;
  /** What is wrong, as one sentence without a full stop. */
  what: string;
};

/** What changes a CPU's speed. */
export type FrequencyFacts = {
  /** Whether frequencies above the nominal one are allowed. */
  boost?: boolean | null;
  /** The scaling driver. */
  driver?: string | null;
  /** Governors in use, with the CPUs each rules. */
  governors: ([string, CpuSet])[];
  /** Lowest and highest frequency allowed, in kHz, over all CPUs. */
  range_khz?: [number, number] | null;
};

/** What a domain was given. */
export type Granted = {
  /** Capabilities in the program's permitted set, as the kernel names them. */
  capabilities: string[];
  /** The program's control groups, one `controller:path` each. */
  control_groups: string[];
  /** Resource limits that were raised: name and value. */
  limits: string[];
  /** Namespaces that it does not share with the host. */
  namespaces: string[];
  /** Who set policy and affinity: `itself` or `outside`. */
  placed_by: string;
  /** The program that ran it and its version, for example `runc 1.1.5`; empty for a process. */
  runtime: string;
  /** Whether a seccomp filter was active. */
  seccomp: boolean;
};

/** One idle state (C-state). */
export type IdleState = {
  /** Whether it is switched off on every CPU. */
  disabled: boolean;
  /** How long waking from it takes, as the driver says. */
  exit_latency: Nanos;
  /** Its name. */
  name: string;
};

/** One interrupt and where it went. */
export type InterruptMove = {
  /** Its number. */
  interrupt: number;
  /** Whether it is off the shielded CPUs now. */
  moved: boolean;
  /** Who asked for it, from `/proc/interrupts`. */
  name: string;
  /** Why not. */
  reason?: string | null;
};

/** An estimate with its two-sided confidence interval. */
export type Interval = {
  /** Confidence, for example 0.95. */
  confidence: number;
  /** The estimate. */
  estimate: number;
  /** Upper end. */
  high: number;
  /** Lower end. */
  low: number;
};

/** What else runs while a meter measures. */
export type LoadKind = "idle" | "cpu" | "memory" | "cache" | "io";

/** Where a load runs, seen from the measured CPUs. */
export type LoadPlace = "same" | "others";

/** A load as it ran. */
export type LoadRecord = {
  /** Whether all of it ran from before the warm-up until after the measurement. */
  ran: boolean;
  /** What was started. */
  stressors: StressorRecord[];
  /** The program and its version, for example `stress-ng 0.15.06`; empty for idle. */
  version: string;
};

/** A worst sample with where it happened. */
export type LocatedWorst = {
  /** The same on `CLOCK_MONOTONIC`. */
  at: Nanos;
  /** The CPU. */
  cpu: CpuId;
  /** `order` of the run. */
  run: number;
  /** When it ended, from the start of that run's warm-up. */
  since_start: Nanos;
  /** How long or how late. */
  value: Nanos;
};

/** Everything about a machine that a figure depends on. */
export type Machine = {
  /** Architecture, for example `x86_64`. */
  architecture: string;
  /** Clock source. */
  clock_source: ClockSource;
  /** Its command line. */
  command_line: string;
  /** Control groups: `v1`, `v2`, `hybrid` or `none`. */
  control_groups: string;
  /** The distribution, from os-release. */
  distribution?: string | null;
  /** What a real-time engineer would change. */
  findings: Finding[];
  /** Frequencies. */
  frequency: FrequencyFacts;
  /** Its name in the network. */
  host_name: string;
  /** Idle driver; none where the kernel has none. */
  idle_driver?: string | null;
  /** Idle states. */
  idle_states: IdleState[];
  /** Release of the kernel. */
  kernel_release: string;
  /** Its version text. */
  kernel_version: string;
  /** Installed memory in bytes. */
  memory: number;
  /** Microcode or firmware revision. */
  microcode?: string | null;
  /** Mitigations: vulnerability and state. */
  mitigations: ([string, string])[];
  /** How it can be preempted. */
  preemption: PreemptionModel;
  /** Model of the processor. */
  processor: string;
  /** Vendor and product, from firmware or device tree. */
  product?: string | null;
  /** Firmware interrupts. */
  system_management_interrupts: SystemManagementInterrupts;
  /** Throttling. */
  throttling: ThrottlingFacts;
  /** Ticks a second, where the configuration is to be read. */
  tick_rate?: number | null;
  /** CPUs, caches, nodes. */
  topology: Topology;
  /** `transparent_hugepage/enabled`, the chosen word. */
  transparent_huge_pages?: string | null;
  /** Virtualisation. */
  virtualisation: Virtualisation;
};

/** One memory node. */
export type MemoryNode = {
  /** Its CPUs. */
  cpus: CpuSet;
  /** Its number. */
  id: number;
  /** Its memory in bytes. */
  memory: number;
};

/** What only one meter knows. */
export type MeterDetail = {
  wakeup: { [key: string]: never };
} | {
  noise: {
    /** Mean turn over the part of the run without gaps, in thousandths of a nanosecond. */
    mean_turn_picos: number;
    /** The shortest turn. */
    shortest_turn: Nanos;
    /** Sum of all gaps: time in which the loop did not run. */
    stolen: Nanos;
    /** Gaps at least this long were kept. */
    threshold: Nanos;
    /** Turns of the loop. */
    turns: number;
  };
} | {
  fwq: {
    /** By how much the shortest was lowered during the measurement: no excess is too small by more than this. */
    lowered: Nanos;
    /** The shortest quantum seen; excess is counted from it. */
    shortest: Nanos;
    /** Turns of the inner loop in one quantum. */
    turns: number;
  };
} | {
  loop: {
    /** The deadline, counted from the planned start. */
    deadline: Nanos;
    /** Periods whose work ended after the deadline; periods never started are in `missed`. */
    deadlines_missed: number;
    /** Turns of the inner loop in one piece of work. */
    turns: number;
    /** The most that a period was too short. */
    worst_early: Nanos;
    /** The most that a period was too long. */
    worst_late: Nanos;
    /** The latest start. */
    worst_start: Nanos;
  };
};

/** The meters. */
export type MeterKind = "wakeup" | "noise" | "fwq" | "loop";

/** What a meter is to do. Times not named otherwise are lengths on `CLOCK_MONOTONIC`. */
export type MeterPlan = {
  /** `wakeup`, `loop`: all threads at the same moments, instead of spread over the period. */
  aligned: boolean;
  /** Length of the blocks in which distributions leave. */
  block: Nanos;
  /** One measuring thread for each of these CPUs. */
  cpus: CpuSet;
  /** Samples of the primary series over this are counted exactly. */
  deadline?: Nanos | null;
  /** How long to measure, warm-up apart. */
  duration: Nanos;
  /** Where everything else of the program runs: reader of the rings, output. Empty: anywhere the program may run that is not measured; if nothing is left, on a measured CPU, and the record says so. */
  housekeeping: CpuSet;
  /** `wakeup`, `loop`: the period, at least 20 µs. */
  interval: Nanos;
  /** Lock all memory. Without it a page fault may be measured; they are counted either way. */
  lock_memory: boolean;
  /** Which meter. */
  meter: MeterKind;
  /** Who sets CPU and policy. */
  placed_by: PlacedBy;
  /** Policy of the measuring threads. */
  policy: SchedulingPolicy;
  /** `noise`: the shortest gap that is kept; none: three times the loop's own period, and at least 200 ns. */
  threshold?: Nanos | null;
  /** How long to run before; shown, not mixed in. */
  warm_up: Nanos;
  /** `fwq`: length of the quantum; `loop`: length of the work, both when undisturbed. */
  work: Nanos;
  /** How many of the worst samples to keep with their moments, for each thread. */
  worst: number;
};

/** A length of time, or a moment on a stated clock, in whole nanoseconds. */
export type Nanos = number;

/** Something that was not measured, and why. */
export type NotMeasured = {
  /** The reasons, with what would change them. */
  findings: Finding[];
  /** A domain, a condition or a cell of the matrix. */
  what: string;
};

/** Who gives the measuring threads their CPU and policy. */
export type PlacedBy = "itself" | "outside";

/** How the kernel can be preempted. */
export type PreemptionModel = "none" | "voluntary" | "full" | "lazy" | "real-time" | "dynamic" | "unknown";

/** What is asked. */
export type Question = "deadline" | "same-as-host" | "interference";

/** What one meter measured in one domain under one condition, over all repetitions. */
export type Record = {
  /** Under what. */
  condition: Condition;
  /** The distributions of the valid repetitions, one entry for each measured CPU. */
  cpus: CpuRecord[];
  /** Name of the domain. */
  domain: string;
  /** What it rests on: valid repetitions alone. */
  exposure: Exposure;
  /** `DOMAIN/METER/CONDITION`, unique in its evaluation. */
  id: string;
  /** Why the record as a whole carries no verdict; empty for a valid one. */
  invalid: Finding[];
  /** Its kind. */
  kind: DomainKind;
  /** What was asked of the meter. */
  plan: MeterPlan;
  /** Every repetition, invalid ones too. */
  runs: Run[];
  /** The worst samples of all CPUs and valid repetitions, worst first. */
  worst: LocatedWorst[];
};

/** One repetition. */
export type Run = {
  /** Length of the measurement. */
  duration: Nanos;
  /** Weaknesses that leave the figures standing. */
  findings: Finding[];
  /** What the domain was granted: capabilities, limits, groups. */
  granted: Granted;
  /** File of the histogram log in the result directory, with every block. */
  histogram_log: string;
  /** Why this run does not count; empty for a valid one. */
  invalid: Finding[];
  /** The load beside it. */
  load: LoadRecord;
  /** Its place in the order of the whole evaluation, from 0. */
  order: number;
  /** The wall that stood. */
  shield?: ShieldReport | null;
  /** When its warm-up began, RFC 3339. */
  started: string;
  /** The same on `CLOCK_MONOTONIC`, which the moments of events are on. */
  started_monotonic: Nanos;
  /** What each thread got and saw. */
  threads: ThreadOutcome[];
};

/** `other`, `fifo:N`, `rr:N` (1 to 99) or `deadline:RUNTIME/DEADLINE/PERIOD` */
export type SchedulingPolicy = string;

/** One measured quantity. All are lengths of time. */
export type Series = "lateness" | "gap" | "excess" | "start-jitter" | "response" | "period-late" | "period-early";

/** One series of one CPU. */
export type SeriesRecord = {
  /** Corrected for missed periods; none where it equals `seen` or the series knows no period. */
  corrected?: Distribution | null;
  /** As seen. */
  seen: Distribution;
  /** Which quantity. */
  series: Series;
};

/** How much a finding matters. */
export type Severity = "note" | "warning" | "problem";

/** A shield as it stood, read back from the kernel. */
export type ShieldReport = {
  /** The shielded CPUs. */
  cpus: CpuSet;
  /** What is weaker than it could be. */
  findings: Finding[];
  /** Interrupts that could have come to the shielded CPUs. */
  interrupts: InterruptMove[];
  /** What `cpuset.cpus.partition` read back, where there is one. */
  partition?: string | null;
  /** Tasks of the kernel that stay because they belong to the CPU. */
  tasks_left: number;
  /** Tasks that were moved away, and tasks that could not be (per-CPU kernel threads). */
  tasks_moved: number;
  /** The wall that was really got. */
  wall: Wall;
  /** The mask of unbound workqueues after the change; none where it could not be changed. */
  workqueues?: CpuSet | null;
};

/** One started load program. */
export type StressorRecord = {
  /** The complete command line. */
  command: string[];
  /** CPU time that it used up while it ran: a load that used none was none. */
  cpu_time: Nanos;
  /** The CPUs it was bound to, read back. */
  cpus: CpuSet;
  /** What it said if it did not start or died. */
  failure?: string | null;
};

/** Interrupts of the firmware, which the kernel does not see. */
export type SystemManagementInterrupts = {
  /** The same at the end. */
  at_end?: number | null;
  /** `MSR_SMI_COUNT` (0x34) at the start, where readable (Intel SDM volume 4). */
  at_start?: number | null;
};

/** The kernel's counts for the thread and its CPU. */
export type ThreadCounters = {
  /** CPU time of the measuring thread. */
  cpu_time: Nanos;
  /** Times it was made to let go of the CPU. */
  involuntary_switches: number;
  /** Page faults served from a disk. */
  major_faults: number;
  /** Page faults served from memory. */
  minor_faults: number;
  /** CPU time of all the program's threads. */
  process_cpu_time: Nanos;
  /** Time that the hypervisor under this machine gave to others, on this CPU, from `/proc/stat`; none where it is not to be read. */
  steal?: Nanos | null;
  /** Times the thread went to sleep. */
  voluntary_switches: number;
};

/** What one measuring thread got and saw, told by the meter at its end. */
export type ThreadOutcome = {
  /** The kernel's own counts over the measurement, warm-up apart. */
  counters: ThreadCounters;
  /** The CPU asked for. */
  cpu: CpuId;
  /** What only this meter knows. */
  detail: MeterDetail;
  /** Length of the measurement. */
  duration: Nanos;
  /** Samples lost because the ring was full. */
  lost: number;
  /** Periods that passed without a sample. */
  missed: number;
  /** Samples over the plan's deadline. */
  over_deadline: number;
  /** Placement as read back from the kernel. */
  placement: EffectivePlacement;
  /** Samples of the primary series (for `noise`: gaps over the threshold). */
  samples: number;
  /** What came before. */
  warm_up: WarmUp;
  /** The worst samples of the primary series, worst first. */
  worst: WorstEvent[];
};

/** What takes a CPU from real-time threads on purpose. */
export type ThrottlingFacts = {
  /** Runtime of the fair server in each of its periods, where it can be read (from 6.12). */
  fair_server?: [Nanos, Nanos] | null;
  /** Whether real-time budgets belong to control groups (`CONFIG_RT_GROUP_SCHED`). */
  group_scheduling?: boolean | null;
  /** `sched_rt_period_us`. */
  period?: Nanos | null;
  /** `sched_rt_runtime_us`: real-time threads may run this long in each period; none: no limit. */
  runtime?: Nanos | null;
};

/** CPUs, caches and nodes. */
export type Topology = {
  /** The CPUs that this process may use: its affinity within its cpuset. */
  allowed: CpuSet;
  /** Each cache. */
  caches: Cache[];
  /** Each online CPU. */
  cpus: Cpu[];
  /** CPUs that `isolcpus=` or isolated partitions took from the scheduler's balancing. */
  isolated: CpuSet;
  /** Each memory node. */
  nodes: MemoryNode[];
  /** CPUs whose tick `nohz_full=` stops. */
  nohz_full: CpuSet;
  /** Online CPUs. */
  online: CpuSet;
  /** CPUs that could be online. */
  possible: CpuSet;
};

/** One answer. */
export type Verdict = {
  /** Under which condition. */
  condition: Condition;
  /** Of which domain. */
  domain: string;
  /** What it rests on. */
  exposure: Exposure;
  /** The figures; none where nothing valid was measured. */
  figures?: VerdictFigures | null;
  /** `QUESTION/DOMAIN/METER/CONDITION`, unique in its evaluation. */
  id: string;
  /** By which meter. */
  meter: MeterKind;
  /** The answer. */
  outcome: VerdictOutcome;
  /** What was asked. */
  question: Question;
  /** The records it was drawn from. */
  records: string[];
  /** The answer in a sentence, with its figures. */
  statement: string;
};

/** The figures behind a verdict. */
export type VerdictFigures = {
  deadline: {
    /** Confidence of the bound, one-sided. */
    confidence: number;
    /** Cycles: samples and missed periods. */
    cycles: number;
    /** The limit. */
    deadline: Nanos;
    /** Samples over the deadline, and missed periods whose corrected lateness is over it (the latter by bucket, within a thousandth of the deadline). */
    exceedances: number;
    /** The worst seen. */
    max: Nanos;
    /** Without exceedances: the mean time between violations is at least this, at the same confidence (exposure ÷ −ln(1 − confidence)). */
    time_between_violations?: Nanos | null;
    /** Exact upper bound of the chance of an exceedance in a cycle (Clopper and Pearson 1934). */
    upper_bound: number;
  };
} | {
  same-as-host: {
    /** Blocks compared on each side. */
    blocks: [number, number];
    /** The record of the host that it was compared with. */
    host: string;
    /** Each compared quantile (0 to 1) with the ratio domain ÷ host. */
    ratios: ([number, Interval])[];
    /** The smallest ratio that this exposure could tell from 1. */
    smallest_detectable: number;
    /** Up to this ratio two records count as the same. */
    tolerance: number;
  };
} | {
  interference: {
    /** Blocks compared on each side. */
    blocks: [number, number];
    /** Each compared quantile (0 to 1) with the ratio loaded ÷ idle. */
    factors: ([number, Interval])[];
    /** The idle record. */
    idle: string;
    /** Up to this factor the wall counts as holding. */
    tolerance: number;
  };
};

/** The answer. */
export type VerdictOutcome = "holds" | "leaks" | "fails" | "inconclusive";

/** Whether the machine is itself a guest. */
export type Virtualisation = {
  /** Whether this process itself runs in a container. */
  container?: string | null;
  /** Whether it is emulated in software, so that its times mean nothing. */
  emulated: boolean;
  /** The hypervisor under it, for example `kvm`; none on bare metal. */
  hypervisor?: string | null;
  /** Steal over the evaluation as a part of all CPU time, from `/proc/stat`. */
  steal?: number | null;
};

/** What keeps ordinary work away from a domain's CPUs, as the kernel confirmed it. */
export type Wall = "none" | "affinity-only" | "cpuset-v1" | "isolated-partition";

/** The warm-up: shown, not mixed in. */
export type WarmUp = {
  /** Its length. */
  duration: Nanos;
  /** The worst of them. */
  max?: Nanos | null;
  /** Samples of the primary series in it. */
  samples: number;
};

/** One of the worst samples. */
export type WorstEvent = {
  /** When it ended (`CLOCK_MONOTONIC`); it began `value` before. */
  at: Nanos;
  /** Number of the sample, from 0 at the start of the measurement. */
  sequence: number;
  /** How long or how late. */
  value: Nanos;
};
