// SPDX-License-Identifier: Apache-2.0 OR MIT
// Distributions as the elements have them, sorted into the bins that a chart draws. Pure functions.
import type { Buckets } from "./elements";

export type Distribution = Buckets;

export const EMPTY: Distribution = { samples: 0, min: null, max: null, buckets: [] };

/** All samples of several distributions. */
export function merge(all: readonly Distribution[]): Distribution {
  const first = all[0];
  if (all.length === 1 && first) return first;
  const counts = new Map<number, number>();
  let samples = 0;
  let min: number | null = null;
  let max: number | null = null;
  for (const one of all) {
    samples += one.samples;
    if (one.min !== null && one.min !== undefined) min = Math.min(min ?? one.min, one.min);
    if (one.max !== null && one.max !== undefined) max = Math.max(max ?? one.max, one.max);
    for (const [value, count] of one.buckets) counts.set(value, (counts.get(value) ?? 0) + count);
  }
  const buckets: [number, number][] = [...counts].sort((a, b) => a[0] - b[0]);
  return { samples, min, max, buckets };
}

/** How the time axis runs. */
export type AxisKind = "log" | "linear";

/** A stretch of the time axis in ns. */
export type Range = readonly [number, number];

/** Borders of display bins over `range`, rising, at least two: `count` bins or a few more. */
export function binEdges(kind: AxisKind, range: Range, count: number): number[] {
  return kind === "log" ? logEdges(range, count) : linearEdges(range, count);
}

/** Bins of equal ratio. Their borders lie on a fixed grid, so that zooming does not shift them. */
function logEdges([from, to]: Range, count: number): number[] {
  const low = Math.max(from, 1);
  const high = Math.max(to, low * 1.001);
  const wanted = count / Math.log10(high / low);
  // Not finer than the document's own buckets are far from the origin.
  const perDecade = [10, 20, 40, 80, 160, 320].findLast((step) => step <= wanted) ?? 10;
  const first = Math.floor(Math.log10(low) * perDecade + 1e-9);
  const last = Math.ceil(Math.log10(high) * perDecade - 1e-9);
  const edges: number[] = [];
  for (let step = first; step <= Math.max(last, first + 1); step++) edges.push(10 ** (step / perDecade));
  return edges;
}

/** Bins of equal width, a round number of ns. */
function linearEdges([from, to]: Range, count: number): number[] {
  const width = roundWidth((Math.max(to, from + 1) - from) / count);
  const first = Math.floor(from / width + 1e-9);
  const last = Math.max(Math.ceil(to / width - 1e-9), first + 1);
  const edges: number[] = [];
  for (let step = first; step <= last; step++) edges.push(step * width);
  return edges;
}

/** The smallest of 1, 2, 5, 10, 20 … ns that is not under `width`. */
export function roundWidth(width: number): number {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(width, 1))));
  for (const step of [1, 2, 5]) if (step * power >= width - 1e-9) return step * power;
  return 10 * power;
}

/** Samples in display bins; `below` and `above` lie outside the borders. Every sample is counted
 * once: a bucket goes whole into the bin that holds its lowest value. */
export type Binned = { counts: number[]; below: number; above: number };

/** Sorts the samples into bins between `edges`. */
export function rebin(of: Distribution, edges: readonly number[]): Binned {
  const counts = new Array<number>(Math.max(edges.length - 1, 0)).fill(0);
  let below = 0;
  let above = 0;
  let bin = 0;
  const first = edges[0] ?? 0;
  for (const [value, count] of of.buckets) {
    if (value < first) {
      below += count;
      continue;
    }
    while (bin < counts.length && value >= (edges[bin + 1] ?? Number.POSITIVE_INFINITY)) bin++;
    if (bin >= counts.length) above += count;
    else counts[bin] = (counts[bin] ?? 0) + count;
  }
  return { counts, below, above };
}

/** The share of all samples that come later than each border. */
export function survival(of: Distribution, edges: readonly number[]): number[] {
  const { counts, below } = rebin(of, edges);
  let left = of.samples - below;
  return edges.map((_, index) => {
    if (index > 0) left -= counts[index - 1] ?? 0;
    return of.samples > 0 ? left / of.samples : 0;
  });
}

/** The range that shows every sample of `all` and, on a logarithmic axis, the deadline. */
export function wholeRange(
  kind: AxisKind,
  all: readonly Distribution[],
  deadline: number | null,
): Range | null {
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const one of all) {
    if (one.samples === 0) continue;
    low = Math.min(low, one.min ?? 0);
    high = Math.max(high, one.max ?? 0);
  }
  if (low > high) return null;
  if (kind === "linear") {
    // A deadline far outside would press the curves into the corner.
    if (deadline !== null && deadline > high && deadline < high * 2) high = deadline;
    return [0, high * 1.04 + 1];
  }
  if (deadline !== null && deadline > 0) {
    low = Math.min(low, deadline);
    high = Math.max(high, deadline);
  }
  low = Math.max(low, 1);
  return [low / 1.15, Math.max(high, low) * 1.25];
}
