// SPDX-License-Identifier: Apache-2.0 OR MIT
// The worst events with their times: a strip for each run, and a table.
import { type Child, drawing, element, row, scrolling, table } from "../dom";
import type { Evaluation, LocatedWorst, Run } from "../evaluation";
import { moment, time } from "../figures";
import {
  conditionName,
  conditions,
  domainName,
  domains,
  type MeasuredRecord,
  type Quantity,
  recordsOf,
} from "../select";
import { COLOURS } from "../theme";
import { causes } from "./causes";

type Located = { record: MeasuredRecord; run: Run | undefined; worst: LocatedWorst };

/** Rows of the table, and strips. */
const ROWS = 12;
const STRIPS = 60;

/** When an event ended, by the clock on the wall. */
export function wallClock(run: Pick<Run, "started"> | undefined, sinceStart: number): string {
  return run === undefined ? "–" : moment(Date.parse(run.started) + sinceStart / 1e6, true);
}

/** Strips and table of a meter under one condition, or under all. */
export function worstEvents(evaluation: Evaluation, quantity: Quantity, condition: string | null): Child[] {
  const names = condition === null ? conditions(evaluation) : [condition];
  const records = names.flatMap((name) => recordsOf(evaluation, quantity.meter, name));
  const events: Located[] = records
    .flatMap((record) =>
      record.worst.map((worst) => ({
        record,
        worst,
        run: record.runs.find((run) => run.order === worst.run),
      })),
    )
    .sort((a, b) => b.worst.value - a.worst.value);
  if (events.length === 0) return [element("p", {}, "No worst event was kept here.")];
  const rows = events
    .slice(0, ROWS)
    .map(({ record, worst, run }) =>
      row(
        [
          element("b", {}, time(worst.value)),
          domainName(evaluation, record.domain),
          conditionName(record.condition),
          worst.cpu,
          worst.run,
          `${(worst.since_start / 1e9).toFixed(6)}\u00a0s`,
          wallClock(run, worst.since_start),
        ],
        ["figure", "", "", "figure", "figure", "figure", "figure"],
      ),
    );
  const header = ["value", "domain", "condition", "CPU", "run", "after the run’s start", "ended at"];
  const meter = quantity.meter;
  return [
    element(
      "p",
      { class: "remark" },
      `The worst samples of ${meter}${condition === null ? "" : ` under ${condition}`}. In the strips, one a run, each stands where it happened; its height is its logarithm. What comes at even distances has a clock for a cause.`,
    ),
    strips(evaluation, records, events),
    scrolling(
      "Worst events",
      table("Worst events", header, ["figure", "", "", "figure", "figure", "figure", "figure"], [rows]),
    ),
    ...causes(evaluation, records),
  ];
}

function strips(
  evaluation: Evaluation,
  records: readonly MeasuredRecord[],
  events: readonly Located[],
): HTMLElement {
  const order = domains(evaluation);
  const lanes = records
    .flatMap((record) => record.runs.map((run) => ({ record, run })))
    .sort(
      (a, b) => order.indexOf(a.record.domain) - order.indexOf(b.record.domain) || a.run.order - b.run.order,
    )
    .slice(0, STRIPS);
  const longest = Math.max(...lanes.map(({ record, run }) => record.plan.warm_up + run.duration), 1);
  const values = events.map(({ worst }) => worst.value);
  const low = Math.log10(Math.max(Math.min(...values), 1)) - 0.3;
  const high = Math.log10(Math.max(...values, 10));
  const severalConditions = new Set(records.map((record) => conditionName(record.condition))).size > 1;
  return element(
    "div",
    { class: "strips" },
    ...lanes.map(({ record, run }) => {
      const index = order.indexOf(record.domain);
      const own = events.filter(({ worst, record: of }) => of === record && worst.run === run.order);
      const label = `${record.domain}${severalConditions ? ` ${conditionName(record.condition)}` : ""} · run ${run.order}`;
      const warmUp = (record.plan.warm_up / longest) * 1000;
      return element(
        "div",
        { class: "strip" },
        element("span", {}, label, run.invalid.length > 0 && " ✗"),
        drawing(
          "svg",
          {
            viewBox: "0 0 1000 20",
            preserveAspectRatio: "none",
            role: "img",
            "aria-label": `${label}: ${own.length} of the worst events`,
          },
          drawing("rect", { x: 0, y: 0, width: warmUp, height: 20, class: "warm-up" }),
          drawing("rect", {
            x: 0,
            y: 19,
            width: ((record.plan.warm_up + run.duration) / longest) * 1000,
            height: 1,
            class: "floor",
          }),
          ...own.map(({ worst }) => {
            const height =
              3 + (16 * (Math.log10(Math.max(worst.value, 1)) - low)) / Math.max(high - low, 0.1);
            const stem = drawing("line", {
              x1: (worst.since_start / longest) * 1000,
              x2: (worst.since_start / longest) * 1000,
              y1: 20,
              y2: 20 - height,
              style: `stroke: var(--curve-${index % COLOURS})`,
            });
            stem.append(
              drawing(
                "title",
                {},
                `${time(worst.value)} on CPU ${worst.cpu}, ${(worst.since_start / 1e9).toFixed(3)} s after the start`,
              ),
            );
            return stem;
          }),
        ),
      );
    }),
    element(
      "div",
      { class: "strip axis" },
      element("span", {}, ""),
      element("span", {}, element("i", {}, "0 s (shaded: warm-up)"), element("i", {}, time(longest))),
    ),
  );
}
