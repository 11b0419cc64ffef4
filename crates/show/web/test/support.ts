// SPDX-License-Identifier: Apache-2.0 OR MIT
import type { Distribution } from "../src/distribution";

/** Numbers from 0 up to 1, the same each time (a 32-bit linear congruential generator). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export const sum = (all: readonly number[]) => all.reduce((total, one) => total + one, 0);

/** The lowest value of the bucket that holds a time. */
function lowest(value: number): number {
  if (value < 2048) return value;
  const width = 2 ** (Math.floor(Math.log2(value)) - 10);
  return Math.floor(value / width) * width;
}

/** A distribution of so many samples over several decades. */
export function samples(next: () => number, count: number): Distribution {
  const values = Array.from({ length: count }, () => Math.floor(10 ** (next() * 7)));
  const counts = new Map<number, number>();
  for (const value of values) counts.set(lowest(value), (counts.get(lowest(value)) ?? 0) + 1);
  return {
    samples: count,
    min: count > 0 ? Math.min(...values) : null,
    max: count > 0 ? Math.max(...values) : null,
    buckets: [...counts].sort((a, b) => a[0] - b[0]),
  };
}
