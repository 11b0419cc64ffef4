// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { quantile } from "../src/distribution";
import type { Evaluation } from "../src/evaluation";
import {
  bytes,
  chance,
  count,
  exactSeed,
  exposure,
  namedCpus,
  percent,
  prose,
  quantileName,
  ratio,
  shell,
  time,
} from "../src/figures";
import { ofRecord } from "../src/select";

const plain = (text: string) => text.replaceAll("\u00a0", " ");
const fixture = (name: string) => readFileSync(`fixtures/${name}.json`, "utf8");

test("one CPU is not several", () => {
  assert.deepEqual(["", "3", "2-3", "1,4"].map(namedCpus), ["no CPU", "CPU 3", "CPUs 2-3", "CPUs 1,4"]);
});

test("times and quantiles are those of the model", () => {
  const agreed = JSON.parse(fixture("agreed")) as {
    times: [number, string][];
    quantiles: [string, number, number | null][];
  };
  assert.ok(agreed.times.length > 20 && agreed.quantiles.length > 50);
  for (const [nanos, text] of agreed.times) assert.equal(plain(time(nanos)), text);
  const evaluation = JSON.parse(fixture("full")) as Evaluation;
  for (const [id, part, expected] of agreed.quantiles) {
    const record = evaluation.records.find((one) => one.id === id);
    assert.ok(record, id);
    const series = record.plan.meter === "wakeup" ? "lateness" : "gap";
    assert.equal(quantile(ofRecord(record, series, false), part), expected, `${id} ${part}`);
  }
});

test("counts keep their digits up to a million", () => {
  for (const [value, text] of [
    [0, "0"],
    [999, "999"],
    [1000, "1 000"],
    [999999, "999 999"],
    [1230000, "1.23 M"],
    [999.7e6, "1.00 G"],
    [1e9, "1.00 G"],
    [2.5e13, "25.0 T"],
  ] as const) {
    assert.equal(plain(count(value)), text);
  }
});

test("a chance is never said to be smaller than it is", () => {
  for (const [probability, text] of [
    [0, "0"],
    [Number.NaN, "0"],
    [0.5, "50 %"],
    [0.01, "1 in 100"],
    [2.9957e-5, "1 in 33 000"],
  ] as const) {
    assert.equal(plain(chance(probability)), text);
  }
});

test("small figures have their words", () => {
  assert.equal(quantileName(0.999), "p99.9");
  assert.equal(quantileName(0.5), "p50");
  assert.equal(quantileName(0.99999), "p99.999");
  assert.equal(ratio(0.0123), "0.012");
  assert.equal(ratio(1.234), "1.23");
  assert.equal(ratio(123.4), "123");
  assert.equal(plain(percent(0.031)), "3.1 %");
  assert.equal(plain(percent(1)), "100 %");
  assert.equal(plain(percent(1.2e-6)), "1.2e-4 %");
  assert.equal(plain(bytes(512 << 10)), "512 KiB");
  assert.equal(plain(bytes(8 * 2 ** 30)), "8 GiB");
  const of = { samples: 1, duration: 2e9, cpus: 1, runs: 3, missed: 0 };
  assert.equal(plain(exposure(of)), "1 sample in 2 s, 3 runs, 1 CPU");
});

test("units stay on the line of their number", () => {
  assert.equal(
    prose("after 819 µs. In 3 runs, 95 % of 5 smiles"),
    "after 819\u00a0µs. In 3 runs, 95\u00a0% of 5 smiles",
  );
});

test("a command can be typed again", () => {
  assert.equal(shell(["rampart", "evaluate", "--for=2m"]), "rampart evaluate --for=2m");
  assert.equal(shell(["a b", "it's", "$HOME", ""]), "'a b' 'it'\\''s' '$HOME' ''");
});

test("the seed keeps the digits that a double loses", () => {
  assert.equal(exactSeed(fixture("full")), "18046744073709551557");
  assert.equal(exactSeed('{"what":"\\"seed\\":5","seed": 7}'), "7");
  assert.equal(exactSeed("{}"), null);
});
