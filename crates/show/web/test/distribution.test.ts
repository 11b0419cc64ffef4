// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type AxisKind,
  binEdges,
  type Distribution,
  EMPTY,
  merge,
  type Range,
  rebin,
  roundWidth,
  survival,
  wholeRange,
} from "../src/distribution";
import { random, samples, sum } from "./support";

const kinds: AxisKind[] = ["log", "linear"];

test("display bins conserve every count, whatever the range", () => {
  const next = random(1);
  for (let round = 0; round < 300; round++) {
    const of = samples(next, Math.floor(next() * 400));
    for (const kind of kinds) {
      const from = next() * 2e6;
      const range: Range =
        round % 3 === 0 ? (wholeRange(kind, [of], null) ?? [1, 10]) : [from, from + 1 + next() * 1e7];
      const edges = binEdges(kind, range, 10 + Math.floor(next() * 300));
      const { counts, below, above } = rebin(of, edges);
      assert.equal(below + sum(counts) + above, of.samples);
      assert.equal(counts.length, edges.length - 1);
      if (round % 3 === 0) assert.equal(below + above, 0, "the whole range shows every sample");
    }
  }
});

test("each bin holds just the buckets between its borders", () => {
  const next = random(2);
  for (let round = 0; round < 100; round++) {
    const of = samples(next, 200);
    const edges = binEdges(kinds[round % 2] ?? "log", [100, 1e6], 40);
    const { counts } = rebin(of, edges);
    counts.forEach((count, bin) => {
      const inside = of.buckets.filter(
        ([value]) => value >= (edges[bin] ?? 0) && value < (edges[bin + 1] ?? 0),
      );
      assert.equal(count, sum(inside.map(([, samples]) => samples)));
    });
  }
});

test("borders rise, cover the range and stay where they are while zooming", () => {
  for (const kind of kinds) {
    for (const [from, to] of [
      [1, 2],
      [1, 2e9],
      [0, 5],
      [2000, 2004],
      [1e3, 2e9],
      [123456, 987654],
    ] as const) {
      const edges = binEdges(kind, [from, to], 150);
      assert.ok(edges.length >= 2 && edges.length < 800, `${kind} ${from} ${to}: ${edges.length}`);
      edges.forEach((edge, index) => {
        assert.ok(index === 0 || edge > (edges[index - 1] ?? 0));
      });
      assert.ok((edges[0] ?? 9e9) <= Math.max(from, kind === "log" ? 1 : 0) * 1.0000001);
      assert.ok((edges.at(-1) ?? 0) >= to * 0.9999999);
    }
  }
  const wide = new Set(binEdges("log", [100, 1e6], 160));
  const shifted = binEdges("log", [150, 9e5], 151);
  assert.ok(shifted.every((edge) => wide.has(edge)));
});

test("survival falls from all to none", () => {
  const next = random(3);
  for (let round = 0; round < 100; round++) {
    const of = samples(next, 1 + Math.floor(next() * 300));
    const edges = binEdges("log", wholeRange("log", [of], null) ?? [1, 10], 200);
    const left = survival(of, edges);
    assert.equal(left[0], 1);
    assert.equal(left.at(-1), 0);
    left.forEach((share, index) => {
      assert.ok(index === 0 || share <= (left[index - 1] ?? 0));
      const later = of.buckets.filter(([value]) => value >= (edges[index] ?? 0));
      assert.ok(Math.abs(share - sum(later.map(([, count]) => count)) / of.samples) < 1e-12);
    });
  }
  assert.deepEqual(survival(EMPTY, [1, 2]), [0, 0]);
});

test("merging is counting together", () => {
  const next = random(4);
  const [a, b] = [samples(next, 100), samples(next, 50)];
  const both = merge([a, b]);
  assert.equal(both.samples, 150);
  assert.equal(sum(both.buckets.map(([, count]) => count)), 150);
  assert.equal(both.max, Math.max(a.max ?? 0, b.max ?? 0));
  assert.deepEqual(merge([]), EMPTY);
  assert.equal(merge([a]), a);
  assert.deepEqual(merge([a, EMPTY]), a);
});

test("widths are round", () => {
  for (const [width, rounded] of [
    [0.2, 1],
    [1, 1],
    [1.1, 2],
    [3, 5],
    [7, 10],
    [101, 200],
  ] as const) {
    assert.equal(roundWidth(width), rounded);
  }
});

test("the whole range holds the deadline where that helps", () => {
  const of: Distribution = {
    samples: 2,
    min: 1000,
    max: 9000,
    buckets: [
      [1000, 1],
      [8996, 1],
    ],
  };
  const log = wholeRange("log", [of], 1e6);
  assert.ok(log && log[0] < 1000 && log[1] > 1e6);
  const far = wholeRange("linear", [of], 1e6);
  assert.ok(far && far[1] > 9000 && far[1] < 20000);
  const near = wholeRange("linear", [of], 12000);
  assert.ok(near && near[1] > 12000);
  assert.equal(wholeRange("log", [EMPTY], 1e6), null);
});
