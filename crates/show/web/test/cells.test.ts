// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { test } from "node:test";
import { cellSums, exitsPerInterrupt } from "../src/cells";
import type { CellExitReport, Evaluation } from "../src/evaluation";

function report(
  exits: [string, number][],
  interruptExits: number,
  interrupts: number | undefined,
): CellExitReport {
  return {
    payload: "bare-metal",
    program: "meter",
    revision: 1,
    cpus: "3",
    memory_bytes: 2 << 20,
    observed: 1_000_000_000,
    exits: exits.map(([reason, count]) => ({ reason, count })),
    interrupt_exits: interruptExits,
    ...(interrupts === undefined ? {} : { interrupts }),
    findings: [],
  };
}

/** An evaluation as far as cells go: runs of one domain, and one round. */
function evaluation(runs: { cell?: CellExitReport; invalid: unknown[] }[], watched: CellExitReport): Evaluation {
  return {
    plan: { domains: [{ name: "host" }, { name: "cell" }] },
    records: [{ domain: "cell", runs }],
    transfers: [{ watched: [{ domain: "cell", invalid: [], cell: watched }] }],
  } as unknown as Evaluation;
}

test("exits are summed over valid runs and rounds", () => {
  const runs = [
    { cell: report([["psci", 2]], 0, 500), invalid: [] },
    { cell: report([["psci", 99]], 99, 1), invalid: [{}] },
  ];
  const sums = cellSums(
    evaluation(
      runs,
      report(
        [
          ["psci", 1],
          ["interrupt", 5],
        ],
        5,
        1_500,
      ),
    ),
  );
  assert.equal(sums.length, 1);
  const [sum] = sums;
  assert.ok(sum);
  assert.deepEqual(
    [...sum.exits],
    [
      ["interrupt", 5],
      ["psci", 3],
    ],
  );
  assert.deepEqual([sum.reports, sum.observed, sum.interrupts], [2, 2_000_000_000, 2_000]);
  assert.equal(exitsPerInterrupt(sum), 0.0025);
});

test("where one report does not tell of interrupts, the sum does not", () => {
  const runs = [{ cell: report([], 0, 500), invalid: [] }];
  const [sum] = cellSums(evaluation(runs, report([], 0, undefined)));
  assert.ok(sum);
  assert.equal(sum.interrupts, null);
  assert.equal(exitsPerInterrupt(sum), null);
});
