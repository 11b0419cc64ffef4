// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by crates/show/present/tests/fixtures.rs from the model; change the model instead.

export type Evaluation = {
  availability: Availability[];
  bench?: Bench;
  command: string[];
  comparison: Comparison;
  crash?: CrashRecord | null;
  findings: Finding[];
  machine: Machine;
  not_measured: NotMeasured[];
  plan: ExperimentPlan;
  plan_effects?: PlanEffects | null;
  records: Record[];
  runs: [number, number];
  schema_version: number;
  started: string;
  state: EvaluationState;
  tool_version: string;
  transfers?: TransferRecord[];
  verdicts: Verdict[];
  written: string;
};

export type Accelerator = "kvm" | "tcg";

export type Availability = {
  available: boolean;
  description: string;
  domain: DomainSelection;
  findings: Finding[];
};

export type Bench = "local" | {
  ssh: {
    host: string;
  };
} | {
  sim: {
    emulator: string;
    kernel: string;
    packages: ([string, string])[];
  };
};

export type BlockKind = "module" | "spin" | "cell";

export type BlockSpan = {
  cpu: CpuId;
  end: Nanos;
  sequence: number;
  start: Nanos;
};

export type BlocksMade = {
  clock?: ClockRelation[];
  kind: BlockKind;
  length: Nanos;
  spans: BlockSpan[];
};

export type Bucket = [Nanos, number];

export type Cache = {
  kind: CacheKind;
  level: number;
  shared_by: CpuSet;
  size: number;
};

export type CacheKind = "data" | "instruction" | "unified";

export type Cause = {
  duration: Nanos;
  kind: CauseKind;
  name: string;
  start: Nanos;
};

export type CauseKind = "nmi" | "interrupt" | "softirq" | "thread" | "unseen";

export type CellExits = {
  count: number;
  reason: string;
};

export type CellPayload = "bare-metal" | "linux";

export type CellExitReport = {
  cpus: CpuSet;
  exits: CellExits[];
  failure?: string | null;
  findings: Finding[];
  interrupt_exits: number;
  interrupts?: number | null;
  memory_bytes: number;
  observed: Nanos;
  payload: CellPayload;
  program: string;
  revision: number;
};

export type ChangeEffect = {
  change: PlanChange;
  outcome: ChangeOutcome;
  statement: string;
};

export type ChangeOutcome = "mattered" | "backfired" | "mixed" | "no-difference-shown" | "inconclusive";

export type ClockRelation = {
  at: Nanos;
  exchanges: number;
  offset: SignedNanos;
  uncertainty: Nanos;
};

export type ClockSource = {
  available: string[];
  current: string;
};

export type Comparison = {
  rows: ComparisonRow[];
  sentences: ([string, string])[];
};

export type ComparisonEntry = {
  answer: string;
  domain: string;
  outcome?: VerdictOutcome | null;
  reason: string;
  verdicts: string[];
};

export type ComparisonRow = {
  cells: ComparisonEntry[];
  question: string;
};

export type Condition = {
  load: LoadKind;
  location?: LoadLocation | null;
};

export type ContainerEngine = "embedded" | "podman" | "docker";

export type Cpu = {
  capacity?: number | null;
  core?: number | null;
  id: CpuId;
  node?: number | null;
  package?: number | null;
  siblings: CpuSet;
};

export type CpuId = number;

export type CpuRecord = {
  cpu: CpuId;
  missed: number;
  over_deadline: number;
  series: SeriesRecord[];
  warm_up_max?: Nanos | null;
};

export type CpuSet = string;

export type CrashRecord = {
  at: Nanos;
  confirmed?: string | null;
  how: string;
  observed: Nanos;
  witnesses: CrashWitness[];
};

export type CrashWitness = {
  after?: RecordedAfter | null;
  domain: string;
  invalid: Finding[];
  last_sample?: Nanos | null;
  lived?: SignedNanos | null;
  memory?: SignInMemory | null;
  signs?: SignPath;
  uncertainty: Nanos;
};

export type Crossed = {
  at_most: number;
  level: number;
  with_block: number;
  without_block: number;
};

export type Distribution = {
  buckets: Bucket[];
  max?: Nanos | null;
  min?: Nanos | null;
  samples: number;
};

export type Disturbance = {
  domain: string;
  kind: DisturbanceKind;
  side: Side;
};

export type DisturbanceKind = "block" | {
  load: LoadKind;
};

export type DomainKind = "host" | "task" | "container" | "vm" | "detached" | "cell";

export type DomainPlan = {
  cpus: CpuSet;
  deadline?: Nanos | null;
  description: string;
  name: string;
  policy?: SchedulingPolicy | null;
  selection: DomainSelection;
};

export type DomainSelection = {
  cell?: CellPayload | null;
  engine?: ContainerEngine | null;
  guest?: GuestRole | null;
  kind: DomainKind;
};

export type EffectOutcome = "better" | "worse" | "no-difference-shown" | "inconclusive";

export type EffectRatio = {
  differs: boolean;
  p_value: number;
  quantile: number;
  ratio: Interval;
};

export type EffectivePlacement = {
  affinity: CpuSet;
  clock_source: string;
  cpus_seen: CpuSet;
  housekeeping: CpuSet;
  memory_locked: boolean;
  migrations: number;
  policy: SchedulingPolicy;
};

export type EffectiveSettings = {
  capabilities: string[];
  control_groups: string[];
  limits: string[];
  namespaces: string[];
  placed_by: string;
  runtime: string;
  seccomp: boolean;
};

export type EvaluationState = "running" | "ended-early" | "complete";

export type ExperimentPlan = {
  conditions: Condition[];
  deadline: Nanos;
  deadline_from_user: boolean;
  domains: DomainPlan[];
  findings: Finding[];
  housekeeping: CpuSet;
  measured?: MeasuredPlan | null;
  meters: MeterPlan[];
  repetitions: number;
  run_duration: Nanos;
  seed: number;
  total: Nanos;
  transfer?: TransferPlan | null;
  variants?: VariantPlan[];
};

export type ExplainedWorst = {
  causes: Cause[];
  cpu: CpuId;
  event: WorstEvent;
  unexplained: Nanos;
};

export type Exposure = {
  cpus: number;
  duration: Nanos;
  missed: number;
  runs: number;
  samples: number;
};

export type Finding = {
  expected?: string | null;
  fix?: string | null;
  found?: string | null;
  location: string;
  rule?: string | null;
  severity: Severity;
  undecided?: boolean;
  what: string;
};

export type FrequencyFacts = {
  boost?: boolean | null;
  driver?: string | null;
  governors: ([string, CpuSet])[];
  range_khz?: [number, number] | null;
};

export type GuestKnob = {
  applied: boolean;
  expected: string;
  fix?: string | null;
  found: string;
  location: string;
  reason: string;
  rule: string;
  satisfied: boolean;
};

export type GuestReport = {
  accelerator: Accelerator;
  boot_time: Nanos;
  clock: ClockRelation[];
  command: string[];
  findings: Finding[];
  kernel: string;
  kernel_command_line: string;
  knobs: GuestKnob[];
  locked_bytes: number;
  memory_bytes: number;
  page_bytes: number;
  pinned: (CpuId | null)[];
  program: string;
  threads: GuestThread[];
};

export type GuestRole = "real-time" | "noisy" | "emulated";

export type GuestThread = {
  cpus: CpuSet;
  name: string;
  policy: SchedulingPolicy;
  role: GuestThreadRole;
  thread: number;
};

export type GuestThreadRole = {
  "virtual-cpu": number;
} | "other";

export type IdleState = {
  disabled: boolean;
  exit_latency: Nanos;
  name: string;
};

export type InterruptMove = {
  interrupt: number;
  moved: boolean;
  name: string;
  reason?: string | null;
};

export type Interval = {
  confidence: number;
  estimate: number;
  high: number;
  low: number;
};

export type IsolationMechanism = "none" | "affinity-only" | "cpuset-v1" | "isolated-partition" | "cell";

export type LoadKind = "idle" | "cpu" | "memory" | "cache" | "io";

export type LoadLocation = "same" | "others";

export type LoadRecord = {
  ran: boolean;
  stressors: StressorRecord[];
  version: string;
};

export type LocatedWorst = {
  at: Nanos;
  cpu: CpuId;
  run: number;
  since_start: Nanos;
  value: Nanos;
};

export type Machine = {
  architecture: string;
  clock_source: ClockSource;
  command_line: string;
  control_groups: string;
  distribution?: string | null;
  findings: Finding[];
  frequency: FrequencyFacts;
  host_name: string;
  idle_driver?: string | null;
  idle_states: IdleState[];
  kernel_release: string;
  kernel_version: string;
  memory: number;
  microcode?: string | null;
  mitigations: ([string, string])[];
  preemption: PreemptionModel;
  processor: string;
  product?: string | null;
  system_management_interrupts: SystemManagementInterrupts;
  throttling: ThrottlingFacts;
  tick_rate?: number | null;
  topology: Topology;
  transparent_huge_pages?: string | null;
  virtualisation: Virtualisation;
};

export type MeasuredPlan = {
  file: string;
  fingerprint: string;
  stands: boolean;
};

export type MemoryNode = {
  cpus: CpuSet;
  id: number;
  memory: number;
};

export type MeterDetail = {
  wakeup: { [key: string]: never };
} | {
  noise: {
    mean_turn_picos: number;
    shortest_turn: Nanos;
    stolen: Nanos;
    threshold: Nanos;
    turns: number;
  };
} | {
  fwq: {
    lowered: Nanos;
    shortest: Nanos;
    turns: number;
  };
} | {
  loop: {
    deadline: Nanos;
    deadlines_missed: number;
    turns: number;
    worst_early: Nanos;
    worst_late: Nanos;
    worst_start: Nanos;
  };
} | {
  irq: { [key: string]: never };
} | {
  mmio: {
    accesses: number;
    mapped: string;
    trapped: string;
  };
};

export type MeterKind = "wakeup" | "noise" | "fwq" | "loop" | "irq" | "mmio";

export type MeterPlan = {
  aligned: boolean;
  batch: Nanos;
  cpus: CpuSet;
  deadline?: Nanos | null;
  duration: Nanos;
  housekeeping: CpuSet;
  interval: Nanos;
  intervals?: Nanos[];
  lock_memory: boolean;
  meter: MeterKind;
  placed_by: PlacedBy;
  policy: SchedulingPolicy;
  threshold?: Nanos | null;
  timeline?: Nanos | null;
  warm_up: Nanos;
  work: Nanos;
  worst: number;
};

export type Nanos = number;

export type NotMeasured = {
  findings: Finding[];
  what: string;
};

export type Participant = {
  cpus: CpuSet;
  domain: string;
};

export type PlacedBy = "itself" | "outside";

export type PlanChange = {
  kind: StepKind;
  name: string;
  title: string;
};

export type PlanEffect = {
  condition: Condition;
  domain: string;
  exposure: [Exposure, Exposure];
  meter: MeterKind;
  outcome: EffectOutcome;
  ratios: EffectRatio[];
  records: [string, string];
  smallest_detectable?: number | null;
  statement: string;
  unwanted_activity?: [UnwantedActivity, UnwantedActivity] | null;
  variant: PlanVariant;
};

export type PlanEffects = {
  ablation: ChangeEffect[];
  changes: PlanChange[];
  effects: PlanEffect[];
  not_compared: NotMeasured[];
  records: VariantRecord[];
  tolerance: number;
};

export type PlanVariant = "after" | "before" | {
  without: PlanChange;
};

export type PreemptionModel = "none" | "voluntary" | "full" | "lazy" | "real-time" | "dynamic" | "unknown";

export type Question = "deadline" | "same-as-host" | "interference" | "transfer" | "crash";

export type Record = {
  condition: Condition;
  cpus: CpuRecord[];
  domain: string;
  emulated?: boolean;
  exposure: Exposure;
  id: string;
  invalid: Finding[];
  kind: DomainKind;
  plan: MeterPlan;
  runs: Run[];
  worst: LocatedWorst[];
};

export type RecordedAfter = {
  duration: Nanos;
  lost: number;
  samples: number;
  without_gap: boolean;
  worst: Nanos;
};

export type Run = {
  cell?: CellExitReport | null;
  duration: Nanos;
  effective_settings: EffectiveSettings;
  explained?: ExplainedWorst[];
  findings: Finding[];
  guest?: GuestReport | null;
  histogram_log: string;
  invalid: Finding[];
  load: LoadRecord;
  order: number;
  shield?: ShieldReport | null;
  started: string;
  started_monotonic: Nanos;
  threads: ThreadOutcome[];
  unwanted_activity?: UnwantedActivity | null;
};

export type SchedulingPolicy = string;

export type Series = "lateness" | "gap" | "excess" | "start-jitter" | "response" | "period-late" | "period-early" | "delivery" | "trapped-access" | "mapped-access";

export type SeriesRecord = {
  corrected?: Distribution | null;
  seen: Distribution;
  series: Series;
};

export type Severity = "note" | "warning" | "error";

export type ShieldReport = {
  cpus: CpuSet;
  findings: Finding[];
  interrupts: InterruptMove[];
  isolation: IsolationMechanism;
  partition?: string | null;
  tasks_left: number;
  tasks_moved: number;
  workqueues?: CpuSet | null;
};

export type Side = "inside" | "under";

export type SignForm = "last-sample" | "agent";

export type SignInMemory = {
  address: number;
  bytes?: number;
  form?: SignForm;
  offset: SignedNanos;
};

export type SignPath = "through-host" | "own-channel" | "memory";

export type SignedNanos = number;

export type StepKind = "isolation" | "cache" | "knob" | "kernel-command-line";

export type StressorRecord = {
  command: string[];
  cpu_time: Nanos;
  cpus: CpuSet;
  failure?: string | null;
};

export type SystemManagementInterrupts = {
  at_end?: number | null;
  at_start?: number | null;
};

export type ThreadCounters = {
  cpu_time: Nanos;
  involuntary_switches: number;
  major_faults: number;
  minor_faults: number;
  process_cpu_time: Nanos;
  steal?: Nanos | null;
  voluntary_switches: number;
};

export type ThreadOutcome = {
  counters: ThreadCounters;
  cpu: CpuId;
  detail: MeterDetail;
  duration: Nanos;
  lost: number;
  missed: number;
  over_deadline: number;
  placement: EffectivePlacement;
  samples: number;
  warm_up: WarmUp;
  worst: WorstEvent[];
};

export type ThrottlingFacts = {
  fair_server?: [Nanos, Nanos] | null;
  group_scheduling?: boolean | null;
  period?: Nanos | null;
  runtime?: Nanos | null;
};

export type Timeline = {
  slot: Nanos;
  start: Nanos;
  worst: (Nanos | null)[];
};

export type Topology = {
  allowed: CpuSet;
  caches: Cache[];
  cpus: Cpu[];
  isolated: CpuSet;
  nodes: MemoryNode[];
  nohz_full: CpuSet;
  online: CpuSet;
  possible: CpuSet;
};

export type TransferGroup = {
  disturbances: Disturbance[];
  participants: Participant[];
};

export type TransferPlan = {
  block_factor: number;
  blocks: number;
  findings: Finding[];
  groups: TransferGroup[];
  interval: Nanos;
  loaded: Nanos;
  policy: SchedulingPolicy;
  quiet: Nanos;
  shortest_block: Nanos;
};

export type TransferRecord = {
  blocks?: BlocksMade | null;
  disturbance?: Disturbance | null;
  duration: Nanos;
  findings: Finding[];
  group: number;
  id: string;
  invalid: Finding[];
  load?: LoadRecord | null;
  order: number;
  started: string;
  watched: Watched[];
};

export type UnwantedActivity = {
  cross_calls: number;
  device_interrupts: number;
  device_softirqs: number;
  kernel_threads: Nanos;
  programs: Nanos;
  timer_interrupts: number;
  watched: Nanos;
};

export type VariantPlan = {
  variant: PlanVariant;
  visits: number;
};

export type VariantRecord = {
  record: Record;
  variant: PlanVariant;
};

export type Verdict = {
  condition: Condition;
  disturbance?: Disturbance | null;
  domain: string;
  exposure: Exposure;
  figures?: VerdictFigures | null;
  id: string;
  meter: MeterKind;
  outcome: VerdictOutcome;
  question: Question;
  records: string[];
  statement: string;
};

export type VerdictFigures = {
  deadline: {
    confidence: number;
    cycles: number;
    deadline: Nanos;
    exceedances: number;
    max: Nanos;
    time_between_violations?: Nanos | null;
    upper_bound: number;
  };
} | {
  "same-as-host": {
    batches: [number, number];
    host: string;
    ratios: ([number, Interval])[];
    smallest_detectable: number;
    tolerance: number;
  };
} | {
  interference: {
    batches: [number, number];
    factors: ([number, Interval])[];
    idle: string;
    tolerance: number;
  };
} | {
  transfer: {
    crossed?: Crossed | null;
    excess: SignedNanos;
    kind: BlockKind;
    length: Nanos;
    p_value: number;
    tolerance: number;
    transfer: Interval;
    with_block: number;
    without_block: number;
  };
} | {
  crash: {
    lived: SignedNanos;
    observed: Nanos;
    uncertainty: Nanos;
  };
};

export type VerdictOutcome = "holds" | "leaks" | "fails" | "inconclusive";

export type Virtualisation = {
  container?: string | null;
  emulated: boolean;
  hypervisor?: string | null;
  steal?: number | null;
};

export type WarmUp = {
  duration: Nanos;
  max?: Nanos | null;
  samples: number;
};

export type Watched = {
  cell?: CellExitReport | null;
  clock?: ClockRelation[];
  cpu: CpuId;
  domain: string;
  findings: Finding[];
  guest?: GuestReport | null;
  invalid: Finding[];
  missed: number;
  seen: Distribution;
  timeline: Timeline;
  windows?: Window[];
};

export type Window = {
  block?: number | null;
  end: Nanos;
  start: Nanos;
  worst?: Nanos | null;
};

export type WorstEvent = {
  at: Nanos;
  sequence: number;
  value: Nanos;
};
