// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { count, percent, time } from "../src/figures";

const plain = (text: string) => text.replaceAll("\u00a0", " ");

test("times are formatted as the model formats them", () => {
  const agreed = JSON.parse(readFileSync("fixtures/agreed.json", "utf8")) as { times: [number, string][] };
  assert.ok(agreed.times.length > 20);
  for (const [nanos, text] of agreed.times) assert.equal(plain(time(nanos)), text);
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

test("percentages have as many figures as they need", () => {
  assert.equal(plain(percent(0.031)), "3.1 %");
  assert.equal(plain(percent(1)), "100 %");
  assert.equal(plain(percent(1.2e-6)), "1.2e-4 %");
});
