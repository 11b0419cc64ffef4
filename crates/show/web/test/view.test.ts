// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import type { Evaluation, Verdict } from "../src/evaluation";
import { binAt, NOTHING, plot, wideEnough, zoomed } from "../src/plot";
import { conditions, curves, domains, gravest, hasCorrected, logMarks, quantities } from "../src/select";
import { random, samples, sum } from "./support";

const read = (name: string) => JSON.parse(readFileSync(`fixtures/${name}.json`, "utf8")) as Evaluation;
const full = read("full");

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
    assert.ok(made.valueRange[0] < 1, "a single sample stands above the floor");
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

test("the document is offered in the plan's order", () => {
  assert.deepEqual(domains(full), ["host", "task", "container"]);
  assert.deepEqual(conditions(full), ["idle", "cpu@others", "cache@others"]);
  assert.deepEqual(
    quantities(full).map(({ meter, series }) => `${meter}/${series}`),
    ["wakeup/lateness", "noise/gap"],
  );
  assert.deepEqual(quantities(read("empty")), []);
});

test("curves are domains, CPUs or conditions, and hold the same samples", () => {
  const quantity = { meter: "wakeup", series: "lateness" } as const;
  const labels = (grouping: "domains" | "cpus" | "conditions", facet: string) =>
    curves(full, quantity, false, grouping, facet).map((curve) => curve.label);
  assert.deepEqual(labels("domains", "idle"), ["host", "task", "container"]);
  assert.equal(labels("cpus", "idle").length, 6);
  assert.deepEqual(labels("conditions", "task"), conditions(full));
  const total = (grouping: "domains" | "cpus") =>
    sum(curves(full, quantity, false, grouping, "idle").map((curve) => curve.distribution.samples));
  assert.equal(total("domains"), total("cpus"));
});

test("corrected adds a sample for each missed period", () => {
  const quantity = { meter: "wakeup", series: "lateness" } as const;
  assert.ok(hasCorrected(full, quantity));
  assert.ok(!hasCorrected(full, { meter: "noise", series: "gap" }));
  const of = (corrected: boolean) =>
    curves(full, quantity, corrected, "domains", "cpu@others")[0]?.distribution.samples ?? 0;
  const record = full.records.find((one) => one.id === "host/wakeup/cpu@others");
  assert.equal(of(true) - of(false), record?.exposure.missed);
});

test("a badge shows the gravest of several verdicts", () => {
  const verdict = (outcome: Verdict["outcome"]) => ({ outcome }) as Verdict;
  assert.equal(gravest([]), null);
  assert.equal(gravest([verdict("holds"), verdict("fails"), verdict("leaks")])?.outcome, "fails");
  assert.equal(gravest([verdict("holds"), verdict("inconclusive")])?.outcome, "inconclusive");
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
  const files = [...readdirSync("src"), ...readdirSync("src/sections").map((name) => `sections/${name}`)];
  const scripts = files.filter((name) => name.endsWith(".ts"));
  assert.ok(scripts.length > 12);
  for (const name of scripts) {
    const markup =
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser/;
    assert.doesNotMatch(readFileSync(`src/${name}`, "utf8"), markup, name);
  }
});
