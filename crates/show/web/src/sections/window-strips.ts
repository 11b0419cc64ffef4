// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a transfer compares: the worst latency of each window with a block, and of each without.
import { drawing, element } from "../dom";
import { time } from "../figures";
import { logMarks } from "../select";
import { type Round, trace } from "../walls";

/** Two rows of dots on one logarithmic axis, a line at each median; null where there are no windows. */
export function windowStrips(round: Round): HTMLElement | null {
  const { windows } = trace(round);
  const worst = (withBlock: boolean) =>
    windows.filter((one) => (one.block !== null) === withBlock).flatMap((one) => one.worst ?? []);
  const rows = [
    { name: "with a block", of: worst(true), shade: "block" },
    { name: "without", of: worst(false), shade: "control" },
  ];
  const all = rows.flatMap(({ of }) => of);
  if (all.length === 0) return null;
  const axis = [Math.max(Math.min(...all) / 1.3, 1), Math.max(...all) * 1.3] as const;
  const location = (value: number) =>
    (Math.log(Math.max(value, 1) / axis[0]) / Math.log(axis[1] / axis[0])) * 100;
  const marks: number[] = [];
  for (const mark of logMarks(axis))
    if (marks.every((other) => Math.abs(location(other) - location(mark)) > 14)) marks.push(mark);
  return element(
    "figure",
    { class: "window-strips" },
    element("figcaption", {}, "Worst latency of each window"),
    ...rows.map(({ name, of, shade }) => {
      const middle = median(of);
      return element(
        "div",
        { class: "window-strip" },
        element(
          "span",
          {},
          name,
          element("small", {}, ` ${of.length}, median ${middle === null ? "–" : time(middle)}`),
        ),
        drawing(
          "svg",
          {
            class: `dots ${shade}`,
            role: "img",
            "aria-label": `${of.length} windows ${name}, median ${middle === null ? "none" : time(middle)}`,
          },
          drawing("line", { x1: 0, x2: "100%", y1: "50%", y2: "50%", class: "rail" }),
          // A little up and down, so that equal ones do not hide each other.
          ...of.map((value, index) =>
            drawing("circle", { cx: `${location(value)}%`, cy: 7 + ((index * 5) % 12), r: 3 }),
          ),
          middle !== null &&
            drawing("line", {
              x1: `${location(middle)}%`,
              x2: `${location(middle)}%`,
              y1: 0,
              y2: "100%",
              class: "median",
            }),
        ),
      );
    }),
    element(
      "div",
      { class: "window-strip" },
      element("span", {}),
      element(
        "span",
        { class: "ratio-axis", "aria-hidden": true },
        ...marks.map((mark) => element("i", { style: `left: ${location(mark)}%` }, time(mark))),
      ),
    ),
  );
}

/** The middle value; of two the mean. */
export function median(values: readonly number[]): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  const high = sorted[Math.floor(sorted.length / 2)];
  const low = sorted[Math.floor((sorted.length - 1) / 2)];
  return high === undefined || low === undefined ? null : (high + low) / 2;
}
