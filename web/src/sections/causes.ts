// SPDX-License-Identifier: Apache-2.0 OR MIT
// The worst samples with what caused them, as the kernel's tracers saw it.
import { type Child, drawing, element, row, scrolling, table } from "../dom";
import type { Cause, CauseKind, ExplainedWorst, Run } from "../evaluation";
import { time } from "../figures";
import { conditionName, type MeasuredRecord } from "../select";

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
export function causes(records: readonly MeasuredRecord[]): Child[] {
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
        record.domain,
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
      "As the kernel’s tracers saw it. The strip is the time from the planned moment to the sample; each cause is shown without what interrupted it.",
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
          "from planned to sampled",
          "causes, the longest first",
        ],
        classes,
        [rows],
        { class: "causes" },
      ),
    ),
  ];
}

/** The sample's time from its planned moment to its end, with each cause in its place. */
function lane(of: ExplainedWorst): SVGElement {
  const { value, at } = of.event;
  const place = (moment: number) =>
    Math.min(Math.max((moment - (at - value)) / Math.max(value, 1), 0), 1) * 100;
  return drawing(
    "svg",
    { class: "cause-lane", role: "img", "aria-label": `${of.causes.length} causes` },
    drawing("rect", { x: 0, y: 0, width: "100%", height: "100%", class: "rail" }),
    ...of.causes.map((cause) => {
      const from = place(cause.start);
      const to = place(cause.start + cause.duration);
      const part = drawing("rect", {
        x: `${from}%`,
        y: 0,
        width: `${Math.max(to - from, 0.8)}%`,
        height: "100%",
        class: cause.kind,
      });
      part.append(drawing("title", {}, named(cause)));
      return part;
    }),
  );
}

function named(cause: Cause): string {
  return `${WORDS[cause.kind]} ${cause.name}, ${time(cause.duration)}`;
}

function words(of: ExplainedWorst): Child {
  if (of.causes.length === 0)
    return "nothing that the kernel saw: an idle state, firmware, or what is under the machine";
  return [
    element(
      "ul",
      { class: "cause-list" },
      ...of.causes.map((cause) =>
        element("li", {}, element("i", { class: `swatch ${cause.kind}` }), named(cause)),
      ),
      of.unexplained > 0 &&
        element(
          "li",
          {},
          element("i", { class: "swatch rest" }),
          `not accounted for, ${time(of.unexplained)}`,
        ),
    ),
  ];
}
