// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the domains were granted, and the facts of the machine.
import { type Child, element, pairs, row, scrolling, section, table } from "../dom";
import type { Evaluation, Machine, Run, ShieldReport } from "../evaluation";
import { bytes, grouped, namedCpus, percent, plural, time } from "../figures";
import { simulated } from "../select";
import { preemption, virtualisation } from "./answer";
import { counts, disturbanceWords } from "./figures-table";

function folded(title: string, ...children: Child[]): HTMLElement {
  return element("details", {}, element("summary", {}, title), ...children);
}

function list(words: readonly string[], none: string): string {
  return words.length > 0 ? words.join(", ") : none;
}

/** What each domain was granted, from its runs. */
export function effective_settings(evaluation: Evaluation): HTMLElement {
  return section(
    "domains",
    "What each domain was granted",
    element(
      "div",
      { class: "cards" },
      ...evaluation.plan.domains.map((domain) => {
        const runs = evaluation.records
          .filter((record) => record.domain === domain.name)
          .flatMap((record) => record.runs);
        const [first] = runs.filter(counts);
        const none =
          runs.length === 0 ? "It was not measured." : "None of its runs counts; the findings say why.";
        return element(
          "article",
          {},
          element("h3", {}, domain.name, element("small", {}, ` ${namedCpus(domain.cpus)}`)),
          element("p", { class: "what" }, domain.description),
          ...(first === undefined ? [element("p", {}, none)] : grantedTo(first, runs.filter(counts))),
        );
      }),
    ),
  );
}

function grantedTo(first: Run, runs: readonly Run[]): Child[] {
  const { effective_settings: given, shield } = first;
  // Names of control groups may differ from run to run; what they grant may not.
  const substance = (run: Run) =>
    JSON.stringify([{ ...run.effective_settings, control_groups: [] }, run.shield?.isolation]);
  const other = runs.filter((run) => substance(run) !== substance(first));
  return [
    pairs(
      ["wall", shield ? disturbanceWords(shield.isolation) : disturbanceWords("none")],
      ["partition reads", shield?.partition ?? null],
      ["run by", given.runtime],
      ["placed by", given.placed_by],
      ["capabilities", capabilities(given.capabilities)],
      ["limits raised", list(given.limits, "none")],
      ["namespaces of its own", list(given.namespaces, "none")],
      ["seccomp", given.seccomp ? "a filter is active" : "no filter"],
      ["control groups", controlGroups(given.control_groups)],
      [
        "tasks",
        shield &&
          `${grouped(shield.tasks_moved)} moved away, ${grouped(shield.tasks_left)} of the kernel stay`,
      ],
      [
        "unbound workqueues",
        shield && (shield.workqueues != null ? `on ${namedCpus(shield.workqueues)}` : "not changed"),
      ],
    ),
    shield && interrupts(shield),
    other.length > 0 &&
      element(
        "p",
        { class: "bad" },
        `${plural(other.length, "run")} got something else than run ${first.order}, which is shown here; the rows under Figures open to each record’s walls.`,
      ),
  ];
}

/** A privileged process has some forty: they are folded. */
function capabilities(all: readonly string[]): Child {
  if (all.length <= 6) return list(all, "none");
  return element(
    "details",
    { class: "inline" },
    element("summary", {}, `${all.length} of them`),
    all.join(", "),
  );
}

/** The groups that are not the root; how many are. */
function controlGroups(all: readonly string[]): Child {
  const own = all.filter((group) => !group.endsWith(":/"));
  const rest = all.length - own.length;
  return [
    ...own.map((group) => element("code", { class: "block" }, group)),
    rest > 0 && `${own.length > 0 ? "and " : ""}the root of ${rest} controllers`,
  ];
}

function interrupts(shield: ShieldReport): Child {
  const stayed = shield.interrupts.filter((one) => !one.moved);
  const words = `${grouped(shield.interrupts.length - stayed.length)} moved away, ${grouped(stayed.length)} not`;
  if (stayed.length === 0) return pairs(["interrupts", words]);
  return [
    pairs(["interrupts", words]),
    folded(
      "interrupts that stay",
      element(
        "ul",
        { class: "plain" },
        ...stayed.map((one) =>
          element("li", {}, `${one.interrupt} ${one.name}: ${one.reason ?? "no reason given"}`),
        ),
      ),
    ),
  ];
}

function caches(machine: Machine): HTMLElement {
  const groups = new Map<string, string[]>();
  for (const cache of machine.topology.caches) {
    const kind = cache.kind === "unified" ? "" : ` ${cache.kind}`;
    const key = `L${cache.level}${kind}, ${bytes(cache.size)}`;
    groups.set(key, [...(groups.get(key) ?? []), cache.shared_by]);
  }
  const rows = [...groups].map(([key, sharers]) => row([key, sharers.map((cpus) => `{${cpus}}`).join(" ")]));
  return table("Caches and the CPUs that share each", ["cache", "shared by the CPUs"], [], [rows]);
}

function cores(machine: Machine): HTMLElement {
  const groups = new Map<
    string,
    { package: number | null; node: number | null; siblings: string; capacity: number | null }
  >();
  for (const cpu of machine.topology.cpus) {
    groups.set(cpu.siblings, {
      package: cpu.package ?? null,
      node: cpu.node ?? null,
      siblings: cpu.siblings,
      capacity: cpu.capacity ?? null,
    });
  }
  const rows = [...groups.values()].map((core) =>
    row(
      [`{${core.siblings}}`, core.package ?? "–", core.node ?? "–", core.capacity ?? "–"],
      ["", "figure", "figure", "figure"],
    ),
  );
  return table(
    "Cores",
    ["CPUs of a core", "package", "node", "capacity"],
    ["", "figure", "figure", "figure"],
    [rows],
  );
}

function throttling(machine: Machine): string {
  const { runtime, period, group_scheduling, fair_server } = machine.throttling;
  const limit =
    runtime == null
      ? "no limit for real-time threads"
      : `real-time threads get ${time(runtime)}${period == null ? "" : ` of each ${time(period)}`}`;
  const groups =
    group_scheduling == null
      ? ""
      : group_scheduling
        ? "; budgets by control group"
        : "; no budgets by control group";
  const fair =
    fair_server == null ? "" : `; fair server ${time(fair_server[0])} of each ${time(fair_server[1])}`;
  return limit + groups + fair;
}

function interruptsOfFirmware(machine: Machine): string {
  const { at_start, at_end } = machine.system_management_interrupts;
  if (at_start == null || at_end == null) return "not readable here";
  return `${grouped(at_end - at_start)} during the evaluation (${grouped(at_start)} before)`;
}

function frequency(machine: Machine): Child {
  const { driver, governors, range_khz, boost } = machine.frequency;
  const parts = [
    driver != null && `driver ${driver}`,
    governors.length > 0 && governors.map(([name, cpus]) => `${name} on ${namedCpus(cpus)}`).join(", "),
    range_khz != null && `${range_khz[0] / 1000}–${range_khz[1] / 1000} MHz`,
    boost != null && (boost ? "boost allowed" : "boost off"),
  ].filter(Boolean);
  return parts.length > 0 ? parts.join("; ") : "no frequency scaling seen";
}

function idleStates(machine: Machine): string {
  if (machine.idle_states.length === 0) return "none seen";
  const states = machine.idle_states.map(
    (state) => `${state.name} ${time(state.exit_latency)}${state.disabled ? " (off)" : ""}`,
  );
  return `${machine.idle_driver ?? "no driver"}: ${states.join(", ")}`;
}

/** Everything about the machine that a figure depends on. */
export function machineFacts(evaluation: Evaluation): HTMLElement {
  const { machine } = evaluation;
  const { topology, virtualisation: virtual } = machine;
  const steal = virtual.steal == null ? "" : `, ${percent(virtual.steal)} of all CPU time stolen`;
  return section(
    "machine",
    "The machine",
    element(
      "div",
      { class: "two-columns" },
      pairs(
        [
          "kernel",
          `${machine.kernel_release} ${preemption(machine.preemption)}${machine.tick_rate == null ? "" : `, ${machine.tick_rate} Hz`}`,
        ],
        ["version", machine.kernel_version],
        ["command line", element("code", {}, machine.command_line)],
        ["distribution", machine.distribution],
        ["processor", `${machine.processor} (${machine.architecture})`],
        ["product", machine.product],
        ["microcode", machine.microcode],
        ["memory", bytes(machine.memory)],
        [
          "virtualisation",
          `${simulated(evaluation.bench) === null ? virtualisation(machine) : "simulated"}${steal}${virtual.container == null ? "" : `; this tool ran in a container (${virtual.container})`}`,
        ],
      ),
      pairs(
        [
          "CPUs online",
          `${topology.online}${topology.possible === topology.online ? "" : ` of possible ${topology.possible}`}`,
        ],
        ["CPUs allowed", topology.allowed],
        ["isolated", topology.isolated || "none"],
        ["nohz_full", topology.nohz_full || "none"],
        ["clock source", `${machine.clock_source.current} (of ${machine.clock_source.available.join(", ")})`],
        ["frequency", frequency(machine)],
        ["idle states", idleStates(machine)],
        ["throttling", throttling(machine)],
        ["firmware interrupts", interruptsOfFirmware(machine)],
        ["control groups", machine.control_groups],
        ["huge pages", machine.transparent_huge_pages],
      ),
    ),
    folded(
      `Topology: ${plural(topology.cpus.length, "CPU")}, ${plural(topology.caches.length, "cache")}, ${plural(topology.nodes.length, "memory node")}`,
      element(
        "div",
        { class: "two-columns" },
        scrolling("Caches", caches(machine)),
        scrolling("Cores", cores(machine)),
      ),
      topology.nodes.length > 0 &&
        element(
          "ul",
          { class: "plain" },
          ...topology.nodes.map((node) =>
            element("li", {}, `node ${node.id}: ${namedCpus(node.cpus)}, ${bytes(node.memory)}`),
          ),
        ),
    ),
    machine.mitigations.length > 0 &&
      folded("Mitigations", pairs(...machine.mitigations.map(([name, state]) => [name, state] as const))),
  );
}
