// SPDX-License-Identifier: Apache-2.0 OR MIT
// Numbers of a chart from distributions. Pure functions.
import {
  type AxisKind,
  binEdges,
  type Distribution,
  type Range,
  rebin,
  survival,
  wholeRange,
} from "./distribution";

/** Histogram: samples in each bin. Survival: the share of samples later than a time. */
export type View = "histogram" | "survival";

/** Values of several curves at common positions. */
export type Plot = {
  range: Range;
  /** Borders of the bins, and the positions of all values. */
  edges: number[];
  /** For each curve one value at each border: of the bin that begins there, or the share later than it. */
  values: number[][];
  /** The lowest and highest value that the value axis shows. */
  valueRange: Range;
};

/** Display bins over the visible range. */
const BINS = { histogram: 150, survival: 400 };

/** A value under the axis: a logarithmic axis has no zero, so the curve leaves the chart. */
export const NOTHING = 1e-12;

/** The plot of these distributions; null without samples. `range` is the stretch that the reader zoomed to. */
export function plot(
  all: readonly Distribution[],
  view: View,
  kind: AxisKind,
  deadline: number | null,
  range: Range | null,
): Plot | null {
  const visible = range ?? wholeRange(kind, all, deadline);
  if (visible === null || !all.some((one) => one.samples > 0)) return null;
  const edges = binEdges(kind, visible, BINS[view]);
  const values = all.map((one) => {
    const raw = view === "histogram" ? [...rebin(one, edges).counts, 0] : survival(one, edges);
    return raw.map((value) => (value > 0 ? value : NOTHING));
  });
  return { range: visible, edges, values, valueRange: valueRange(all, view, values) };
}

function valueRange(all: readonly Distribution[], view: View, values: number[][]): Range {
  if (view === "survival") {
    const most = Math.max(...all.map((one) => one.samples), 1);
    return [0.5 / most, 1.6];
  }
  let highest = 1;
  for (const curve of values) for (const value of curve) if (value > highest) highest = value;
  return [0.5, highest * 2];
}

/** The number of the bin that holds `time`; -1 outside. */
export function binAt(edges: readonly number[], time: number): number {
  let low = 0;
  let high = edges.length - 1;
  if (high < 1 || time < (edges[0] ?? 0) || time >= (edges[high] ?? 0)) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((edges[middle] ?? 0) <= time) low = middle;
    else high = middle;
  }
  return low;
}

/** `range` made `factor` times as wide about `centre`, on its axis. */
export function zoomed(kind: AxisKind, [from, to]: Range, factor: number, centre: number): Range {
  if (kind === "linear") {
    const middle = Math.min(Math.max(centre, from), to);
    return [Math.max(0, middle - (middle - from) * factor), middle + (to - middle) * factor];
  }
  const middle = Math.log10(Math.min(Math.max(centre, from), to));
  const low = middle - (middle - Math.log10(from)) * factor;
  const high = middle + (Math.log10(to) - middle) * factor;
  return [Math.max(1, 10 ** low), 10 ** high];
}

/** The narrowest stretch that zooming ends at: a thousandth, or a few ns. */
export function wideEnough([from, to]: Range): boolean {
  return to - from >= 4 && to / Math.max(from, 1) > 1.002;
}

/** Round positions for marks on a logarithmic axis: decades, with 2 and 5 where there is space. */
export function logMarks([from, to]: readonly [number, number]): number[] {
  const decades = Math.log10(to / from);
  const steps = decades > 3.2 ? [1] : decades > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const marks: number[] = [];
  for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) {
    for (const step of steps) {
      const mark = step * 10 ** power;
      if (mark >= from * 0.9999 && mark <= to * 1.0001) marks.push(Number(mark.toPrecision(6)));
    }
  }
  return marks;
}
