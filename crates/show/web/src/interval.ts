// SPDX-License-Identifier: Apache-2.0 OR MIT
// An interval as a small drawing: estimate, ends, tolerance, on an axis that all rows share.
import { drawing, element } from "./dom";
import type { Interval } from "./evaluation";
import { ratio } from "./figures";

/** Where a value stands on an axis, 0 to 100. */
export type Place = (value: number) => number;

/** An interval on an axis. `tolerance` is the shaded stretch, `mark` the value that means no effect. */
export function intervalDrawing(
  interval: Interval,
  location: Place,
  tolerance: readonly [number, number],
  mark: number,
  outcome: string,
): SVGElement {
  const at = (value: number) => `${location(value)}%`;
  return drawing(
    "svg",
    {
      class: `interval ${outcome}`,
      role: "img",
      "aria-label": `${ratio(interval.estimate)}, from ${ratio(interval.low)} to ${ratio(interval.high)}`,
    },
    drawing("rect", {
      x: at(tolerance[0]),
      y: 0,
      width: `${location(tolerance[1]) - location(tolerance[0])}%`,
      height: "100%",
      class: "tolerance",
    }),
    drawing("line", { x1: at(mark), x2: at(mark), y1: 0, y2: "100%", class: "one" }),
    drawing("line", { x1: at(interval.low), x2: at(interval.high), y1: "50%", y2: "50%", class: "whisker" }),
    drawing("circle", { cx: at(interval.estimate), cy: "50%", r: 3.5, class: "estimate" }),
  );
}

/** The axis that all ratios of a table share. */
export function ratioAxis(all: readonly Interval[], tolerance: number): readonly [number, number] {
  const ends = all
    .flatMap((interval) => [interval.low, interval.high])
    .filter((end) => Number.isFinite(end) && end > 0);
  const low = Math.min(...ends, 1 / tolerance, 0.8);
  const high = Math.max(...ends, tolerance, 1.25);
  return [Math.max(low, 1e-4) / 1.1, Math.min(high, 1e6) * 1.1];
}

/** Where a ratio stands on the axis, 0 to 100; beyond its ends at the ends. */
export function ratioLocation(value: number, [low, high]: readonly [number, number]): number {
  const part = Math.log(Math.max(value, 1e-9) / low) / Math.log(high / low);
  return Math.min(Math.max(part, 0), 1) * 100;
}

/** Where a transfer stands between nothing and all of a block. */
export function transferLocation(value: number): number {
  return Math.min(Math.max((value + 0.15) / 1.3, 0), 1) * 100;
}

/** Names of ratios along their axis. */
export function ratioMarks(axis: readonly [number, number]): HTMLElement {
  const candidates = [
    1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e3, 1e4, 1e5, 1e6,
  ];
  const marks: number[] = [];
  // From 1 outwards, so that it is always named; the others where there is room.
  for (const mark of candidates.sort((a, b) => Math.abs(Math.log(a)) - Math.abs(Math.log(b)))) {
    if (mark <= axis[0] || mark >= axis[1]) continue;
    if (marks.every((other) => Math.abs(ratioLocation(other, axis) - ratioLocation(mark, axis)) > 11))
      marks.push(mark);
  }
  return element(
    "span",
    { class: "ratio-axis", "aria-hidden": true },
    ...marks.map((mark) =>
      element(
        "i",
        { style: `left: ${ratioLocation(mark, axis)}%` },
        mark >= 1000 ? mark.toExponential(0) : String(mark),
      ),
    ),
  );
}
