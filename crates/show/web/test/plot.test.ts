// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import type { Element, LatencyChart, PageData } from "../src/elements";
import { binAt, logMarks, NOTHING, plot, wideEnough, zoomed } from "../src/plot";
import { random, samples, sum } from "./support";

/** The chart of a fixture. */
function latency(name: string): LatencyChart {
  const data = JSON.parse(readFileSync(`fixtures/${name}.json`, "utf8")) as PageData;
  const flat = (all: Element[]): Element[] =>
    all.flatMap((one) => (one.kind === "detail" ? flat(one.elements) : [one]));
  const found = flat(data.elements).find((one) => one.kind === "latency");
  assert.ok(found);
  return found;
}

test("a histogram draws every sample of every curve", () => {
  const next = random(5);
  const all = [samples(next, 500), samples(next, 3), samples(next, 0)];
  for (const kind of ["log", "linear"] as const) {
    const made = plot(all, "histogram", kind, null, null);
    assert.ok(made);
    made.values.forEach((values, curve) => {
      const counted = sum(values.filter((value) => value !== NOTHING));
      assert.equal(counted, all[curve]?.samples);
      assert.equal(values.length, made.edges.length);
    });
    assert.ok(made.valueRange[0] < 1, "a single sample is above the floor");
  }
  assert.equal(plot([], "histogram", "log", null, null), null);
  assert.equal(plot([samples(next, 0)], "survival", "log", 100, null), null);
});

test("the reading line finds its bin", () => {
  const edges = [1, 2, 4, 8];
  assert.deepEqual(
    [0.5, 1, 1.9, 2, 7.9, 8].map((time) => binAt(edges, time)),
    [-1, 0, 0, 1, 2, -1],
  );
  assert.equal(binAt([], 1), -1);
});

test("zooming keeps its centre, and ends", () => {
  assert.deepEqual(zoomed("linear", [0, 100], 0.5, 20), [10, 60]);
  const [low, high] = zoomed("log", [10, 1000], 0.5, 100);
  assert.ok(Math.abs(low - 31.6) < 0.1 && Math.abs(high - 316) < 1);
  assert.ok(zoomed("log", [1, 10], 4, 3)[0] >= 1);
  assert.ok(wideEnough([100, 200]) && !wideEnough([100, 102]) && !wideEnough([1e6, 1.001e6]));
});

test("curves of domains and of CPUs have the same samples, corrected ones one more for each missed period", () => {
  const { views, distributions } = latency("full");
  assert.deepEqual(
    views.map((view) => view.key),
    ["wakeup/lateness/seen", "wakeup/lateness/corrected", "noise/gap/seen"],
  );
  const samples = (view: number, grouping: number, facet: number) =>
    sum(
      (views[view]?.groupings[grouping]?.facets[facet]?.curves ?? []).flatMap((curve) =>
        curve.parts.map((part) => distributions[part]?.samples ?? 0),
      ),
    );
  assert.deepEqual(
    views[0]?.groupings.map((grouping) => grouping.facets[0]?.curves.length),
    [3, 6, 3],
  );
  assert.equal(samples(0, 0, 1), samples(0, 1, 1));
  assert.ok(samples(1, 0, 1) > samples(0, 0, 1));
});

test("an axis has a few round marks, whatever it spans", () => {
  for (const range of [
    [1, 2e9],
    [2e3, 3e5],
    [9e3, 1.1e4],
    [1e3, 1.2e3],
  ] as const) {
    const marks = logMarks(range);
    assert.ok(marks.length >= 1 && marks.length <= 14, `${range}: ${marks}`);
    assert.ok(marks.every((mark) => mark >= range[0] && mark <= range[1]));
  }
});

test("no text of the document can become markup", () => {
  const scripts = readdirSync("src").filter((name) => name.endsWith(".ts"));
  assert.ok(scripts.length > 12);
  for (const name of scripts) {
    const markup =
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser/;
    assert.doesNotMatch(readFileSync(`src/${name}`, "utf8"), markup, name);
  }
});
