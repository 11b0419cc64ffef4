// SPDX-License-Identifier: Apache-2.0 OR MIT
// The worst samples with what caused them, as the kernel's tracers saw it.
import { type Child, drawing, element, row, scrolling, table } from "../dom";
import type { Cause, CauseKind, Evaluation, ExplainedWorst, Run } from "../evaluation";
import { time } from "../figures";
import { conditionName, domainName, type MeasuredRecord } from "../select";

const ROWS = 10;

const WORDS: { [kind in CauseKind]: string } = {
  nmi: "NMI",
  interrupt: "interrupt",
  softirq: "softirq",
  thread: "thread",
  unseen: "unseen",
};

type Explained = { record: MeasuredRecord; run: Run; of: ExplainedWorst };

/** The ten worst of these records; nothing where the kernel was not asked. */
export function causes(evaluation: Evaluation, records: readonly MeasuredRecord[]): Child[] {
  const all: Explained[] = records
    .flatMap((record) =>
      record.runs
        .filter((run) => run.invalid.length === 0)
        .flatMap((run) => (run.explained ?? []).map((of) => ({ record, run, of }))),
    )
    .sort((a, b) => b.of.event.value - a.of.event.value)
    .slice(0, ROWS);
  if (all.length === 0) return [];
  const classes = ["figure", "", "", "figure", "figure", "lane", ""];
  const rows = all.map(({ record, run, of }) =>
    row(
      [
        element("b", {}, time(of.event.value)),
        domainName(evaluation, record.domain),
        conditionName(record.condition),
        of.cpu,
        `${((of.event.at - run.started_monotonic) / 1e9).toFixed(6)}\u00a0s`,
        lane(of),
        words(of),
      ],
      classes,
    ),
  );
  return [
    element("h3", {}, "What caused them"),
    element(
      "p",
      { class: "remark" },
      "As the kernel’s tracers saw it. The strip is the sample’s time: each cause has the share that it took of it, less what interrupted it.",
    ),
    scrolling(
      "Causes of the worst samples",
      table(
        "Causes of the worst samples",
        [
          "value",
          "domain",
          "condition",
          "CPU",
          "after the run’s start",
          "share of its time",
          "causes, the longest first",
        ],
        classes,
        [rows],
        { class: "causes" },
      ),
    ),
  ];
}

/** What the kernel saw, and what it did not. */
function parted({ causes }: ExplainedWorst): { seen: readonly Cause[]; unseen: readonly string[] } {
  return {
    seen: causes.filter((cause) => cause.kind !== "unseen"),
    unseen: causes.flatMap((cause) => (cause.kind === "unseen" ? cause.name : [])),
  };
}

/** The sample's time, with the share that each cause had of it. */
function lane(of: ExplainedWorst): SVGElement {
  const { seen } = parted(of);
  const share = (nanos: number) => (nanos / Math.max(of.event.value, 1)) * 100;
  let from = 0;
  return drawing(
    "svg",
    { class: "cause-lane", role: "img", "aria-label": `${seen.length} causes` },
    drawing("rect", { x: 0, y: 0, width: "100%", height: "100%", class: "rail" }),
    ...seen.map((cause) => {
      const width = Math.min(share(cause.duration), Math.max(100 - from, 0));
      const part = drawing("rect", {
        x: `${from}%`,
        y: 0,
        width: `${width}%`,
        height: "100%",
        class: cause.kind,
      });
      from += width;
      part.append(drawing("title", {}, named(cause)));
      return part;
    }),
  );
}

function named(cause: Cause): string {
  return `${WORDS[cause.kind]} ${cause.name}, ${time(cause.duration)}`;
}

function words(of: ExplainedWorst): Child {
  const { seen, unseen } = parted(of);
  const names = unseen.join(", ");
  if (seen.length === 0)
    return `${names || "nothing that the kernel saw"}: an idle state, firmware, or what is under the machine`;
  return element(
    "ul",
    { class: "cause-list" },
    ...seen.map((cause) => element("li", {}, element("i", { class: `swatch ${cause.kind}` }), named(cause))),
    of.unexplained > 0 &&
      element(
        "li",
        {},
        element("i", { class: "swatch rest" }),
        `not accounted for, ${time(of.unexplained)}${names && ` (${names})`}`,
      ),
  );
}
