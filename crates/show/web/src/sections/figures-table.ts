// SPDX-License-Identifier: Apache-2.0 OR MIT
// Quantiles, each with what it rests on: samples, time, runs, wall, load.
import { backedQuantile } from "../distribution";
import { badge, type Child, element, findingList, pairs, row, scrolling, table } from "../dom";
import type { Evaluation, IsolationMechanism, Run, ThreadOutcome } from "../evaluation";
import { count, grouped, namedCpus, percent, quantileName, shell, time, timeOrDash } from "../figures";
import {
  conditions,
  isEmulated,
  type MeasuredRecord,
  ofCpu,
  ofRecord,
  type Quantity,
  recordsOf,
  seriesWords,
} from "../select";

const QUANTILES = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];

const WALLS: { [isolation in IsolationMechanism]: string } = {
  none: "no wall",
  "affinity-only": "affinity alone",
  "cpuset-v1": "cpuset (cgroup v1)",
  "isolated-partition": "isolated partition (cgroup v2)",
  cell: "cell (hypervisor)",
};

const SHORT_WALLS: { [isolation in IsolationMechanism]: string } = {
  none: "none",
  "affinity-only": "affinity alone",
  "cpuset-v1": "cpuset",
  "isolated-partition": "isolated partition",
  cell: "cell",
};

/** A wall in words. */
export function disturbanceWords(isolation: IsolationMechanism): string {
  return WALLS[isolation];
}

/** Whether a run is part of its record's figures. */
export function counts(run: Run): boolean {
  return run.invalid.length === 0;
}

/** The walls that the runs of a record got; more than one is worth a question. */
export function walls(record: MeasuredRecord): string {
  const got = record.runs.filter(counts).map((run) => SHORT_WALLS[run.shield?.isolation ?? "none"]);
  return [...new Set(got)].join(", ") || "–";
}

/** The table of all conditions; only the chosen one's rows are seen, and on paper all. */
export function figures(
  evaluation: Evaluation,
  quantity: Quantity,
  corrected: boolean,
  condition: string | null,
): Child[] {
  const all = conditions(evaluation).map((name) => ({
    name,
    records: recordsOf(evaluation, quantity.meter, name),
  }));
  const records = all.flatMap((one) => one.records);
  const backed = QUANTILES.filter((part) =>
    records.some((record) => backedQuantile(ofRecord(record, quantity.series, corrected), part) !== null),
  );
  const primary = records[0]?.cpus[0]?.series[0]?.series === quantity.series;
  const columns = [
    "",
    "samples",
    "time",
    "runs",
    "missed",
    "min",
    ...backed.map(quantileName),
    "max",
    primary ? "over deadline" : null,
    "warm-up max",
    "wall",
  ].filter((name) => name !== null);
  const classes = columns.map((name, index) => (index === 0 || name === "wall" ? "" : "figure"));
  const bodies = all.map(({ name, records: under }) => ({
    hidden: condition !== null && name !== condition,
    rows:
      under.length === 0
        ? []
        : [
            element(
              "tr",
              { class: "group" },
              element("th", { colspan: columns.length, scope: "rowgroup" }, name, loadWords(under)),
            ),
            ...under.flatMap((record) =>
              recordRows(evaluation, record, quantity, corrected, backed, primary, columns.length, classes),
            ),
          ],
  }));
  const made = table(
    "Quantiles with their exposure",
    columns,
    classes,
    bodies.map((body) => body.rows),
    { class: "figures" },
  );
  [...made.tBodies].forEach((body, index) => {
    body.classList.toggle("unchosen", bodies[index]?.hidden ?? false);
  });
  return [
    element(
      "p",
      { class: "remark" },
      `${quantity.meter}: ${seriesWords(quantity.series)}, ${corrected ? "corrected for missed periods" : "as seen"}, all CPUs of a domain together, warm-up apart. A quantile is shown where at least 10 samples lie above it. A row opens to what its figures rest on.`,
    ),
    scrolling("Figures", made),
  ];
}

function loadWords(records: readonly MeasuredRecord[]): Child {
  const versions = records.flatMap((record) => record.runs.map((run) => run.load.version)).filter(Boolean);
  const commands = records.flatMap((record) =>
    record.runs.flatMap((run) => run.load.stressors.map((one) => shell(one.command))),
  );
  if (versions.length === 0) return element("span", { class: "load" }, "no load started");
  const [first] = commands;
  const more = new Set(commands).size - 1;
  return element(
    "span",
    { class: "load" },
    versions[0],
    first && [": ", element("code", {}, first)],
    more > 0 && ` and ${more} more`,
  );
}

function recordRows(
  evaluation: Evaluation,
  record: MeasuredRecord,
  quantity: Quantity,
  corrected: boolean,
  backed: readonly number[],
  primary: boolean,
  columns: number,
  classes: readonly string[],
): HTMLElement[] {
  const of = ofRecord(record, quantity.series, corrected);
  const { exposure } = record;
  const invalid = record.invalid.length > 0;
  const over = record.cpus.reduce((sum, cpu) => sum + cpu.over_deadline, 0);
  const warmUp = record.cpus.flatMap((cpu) => cpu.warm_up_max ?? []);
  const details = element("tr", { class: "details", hidden: true }, element("td", { colspan: columns }));
  const button: HTMLButtonElement = element(
    "button",
    {
      type: "button",
      class: "opener",
      "aria-expanded": "false",
      onclick: () => {
        const open = details.hidden;
        details.hidden = !open;
        button.setAttribute("aria-expanded", String(open));
        // Only now: with many CPUs these are many.
        const cell = details.firstElementChild;
        if (open && cell !== null && cell.childElementCount === 0)
          cell.append(...recordDetails(record, quantity, corrected, backed));
      },
    },
    record.domain,
  );
  const figure = (value: number): Child => (value > 0 ? element("b", { class: "bad" }, grouped(value)) : "0");
  const cells: Child[] = [
    [
      button,
      isEmulated(evaluation, record.domain) && [" ", element("small", { class: "emulated" }, "emulated")],
      invalid && element("span", { class: "badge invalid" }, "✗ invalid"),
    ],
    count(of.samples),
    time(exposure.duration),
    String(exposure.runs),
    figure(exposure.missed),
    timeOrDash(of.min),
    ...backed.map((part) => timeOrDash(backedQuantile(of, part))),
    element("b", {}, timeOrDash(of.max)),
    ...(primary ? [figure(over)] : []),
    warmUp.length > 0 ? time(Math.max(...warmUp)) : "–",
    walls(record),
  ];
  return [row(cells, classes, { class: invalid ? "invalid" : null }), details];
}

function recordDetails(
  record: MeasuredRecord,
  quantity: Quantity,
  corrected: boolean,
  backed: readonly number[],
): Child[] & Node[] {
  const { plan } = record;
  const threads = record.runs.flatMap((run) => run.threads);
  const total = (of: (thread: ThreadOutcome) => number) =>
    threads.reduce((sum, thread) => sum + of(thread), 0);
  const steal = threads.some((thread) => thread.counters.steal != null)
    ? total((thread) => thread.counters.steal ?? 0)
    : null;
  const unique = (of: (thread: ThreadOutcome) => string) => [...new Set(threads.map(of))].join(", ");
  const nodes: Node[] = [];
  if (record.invalid.length > 0) nodes.push(findingList(record.invalid));
  if (record.cpus.length > 1) {
    const header = [
      "CPU",
      "samples",
      "min",
      ...backed.map(quantileName),
      "max",
      "over deadline",
      "missed",
      "warm-up max",
    ];
    const rows = record.cpus.map((cpu) => {
      const of = ofCpu(cpu, quantity.series, corrected);
      return row(
        [
          `CPU ${cpu.cpu}`,
          count(of.samples),
          timeOrDash(of.min),
          ...backed.map((part) => timeOrDash(backedQuantile(of, part))),
          timeOrDash(of.max),
          grouped(cpu.over_deadline),
          grouped(cpu.missed),
          timeOrDash(cpu.warm_up_max),
        ],
        ["", ...header.slice(1).map(() => "figure")],
      );
    });
    nodes.push(table("Each CPU", header, ["", ...header.slice(1).map(() => "figure")], [rows]));
  }
  nodes.push(
    pairs(
      [
        "asked of the meter",
        `${plan.meter} on ${namedCpus(plan.cpus)}, ${plan.policy}, ${meterWords(record)}, warm-up ${time(plan.warm_up)}`,
      ],
      [
        "placement read back",
        threads.length > 0 &&
          `policy ${unique((thread) => thread.placement.policy)}; on ${namedCpus(unique((thread) => thread.placement.cpus_seen))}; memory ${threads.every((thread) => thread.placement.memory_locked) ? "locked" : "not locked"}; clock ${unique((thread) => thread.placement.clock_source)}; rest of the program on ${namedCpus(unique((thread) => thread.placement.housekeeping))}`,
      ],
      [
        "disturbances counted",
        threads.length > 0 &&
          `${grouped(total((thread) => thread.placement.migrations))} migrations, ${grouped(total((thread) => thread.counters.involuntary_switches))} involuntary switches, ${grouped(total((thread) => thread.counters.minor_faults + thread.counters.major_faults))} page faults${steal === null ? "" : `, ${time(steal)} stolen by the hypervisor below`}`,
      ],
      [
        "CPU time of the meter",
        threads.length > 0 &&
          `${time(total((thread) => thread.counters.cpu_time))} (${percent(
            total((thread) => thread.counters.cpu_time) /
              Math.max(
                total((thread) => thread.duration),
                1,
              ),
          )} of the measured time)`,
      ],
    ),
    runsTable(record.runs),
  );
  return nodes;
}

function meterWords(record: MeasuredRecord): string {
  const { plan } = record;
  switch (plan.meter) {
    case "wakeup":
    case "irq":
    case "mmio":
      return `every ${time(plan.interval)}`;
    case "loop":
      return `every ${time(plan.interval)}, ${time(plan.work)} of work`;
    case "fwq":
      return `quanta of ${time(plan.work)}`;
    case "noise":
      return plan.threshold == null ? "gaps over the loop’s own period" : `gaps over ${time(plan.threshold)}`;
  }
}

function runsTable(runs: readonly Run[]): HTMLElement {
  const header = ["run", "began", "time", "samples", "load", "its CPU time", "histogram"];
  const rows = runs.map((run) => {
    const cpuTime = run.load.stressors.reduce((sum, stressor) => sum + stressor.cpu_time, 0);
    const failures = run.load.stressors.flatMap((stressor) => stressor.failure ?? []);
    return row(
      [
        [
          `${run.order}`,
          run.invalid.length > 0 && [" ", element("span", { class: "badge invalid" }, "✗ does not count")],
        ],
        run.started.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC"),
        time(run.duration),
        grouped(run.threads.reduce((sum, thread) => sum + thread.samples, 0)),
        [
          run.load.stressors.length === 0
            ? "none"
            : run.load.stressors.map((one) => element("code", {}, shell(one.command))),
          !run.load.ran && [" ", badge("fails", "load")],
          failures.length > 0 && element("div", { class: "bad" }, failures.join("; ")),
          run.invalid.length > 0 && findingList(run.invalid),
        ],
        run.load.stressors.length === 0 ? "–" : time(cpuTime),
        element("code", {}, run.histogram_log),
      ],
      ["", "", "figure", "figure", "", "figure", ""],
    );
  });
  return table("Runs", header, ["", "", "figure", "figure", "", "figure", ""], [rows], { class: "runs" });
}
