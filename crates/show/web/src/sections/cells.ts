// SPDX-License-Identifier: Apache-2.0 OR MIT
// How often each cell came to the hypervisor.
import { type CellSum, cellSums, exitsPerInterrupt } from "../cells";
import { type Child, element, findingList, pairs, row, scrolling, section, table } from "../dom";
import type { Evaluation } from "../evaluation";
import { bytes, grouped, time } from "../figures";
import { domainName } from "../select";

/** The section; null where no domain is a cell. */
export function cells(evaluation: Evaluation): HTMLElement | null {
  const sums = cellSums(evaluation);
  if (sums.length === 0) return null;
  const rows = sums.map((sum) =>
    row([
      domainName(evaluation, sum.domain),
      time(sum.observed),
      sum.interrupts === null ? "not asked" : grouped(sum.interrupts),
      grouped(sum.interruptExits),
      perInterrupt(sum),
      byReason(sum),
    ]),
  );
  const head = ["cell", "time", "interrupts", "exits for them", "for each", "exits of any sort"];
  return section(
    "cells",
    "Cells",
    element(
      "p",
      { class: "remark" },
      "How often their CPUs came to the hypervisor while they measured, by its own counters. A cell that takes its interrupts itself has no exit for them.",
    ),
    scrolling("Exits", table("Exits of the cells to the hypervisor", head, [], [rows])),
    ...sums.map((sum) => cell(domainName(evaluation, sum.domain), sum)),
  );
}

function cell(name: Child, { last, reports, failures }: CellSum): HTMLElement {
  return element(
    "article",
    { class: "cell" },
    element("h3", {}, name),
    pairs(
      ["runs", `${last.payload === "linux" ? "Linux" : "no operating system"}: ${last.program}`],
      ["memory of its own", bytes(last.memory_bytes)],
      ["its CPUs", last.cpus],
      ["interface of the hypervisor", `revision ${last.revision}`],
      ["looked at", `${reports} ${reports === 1 ? "measurement" : "measurements"}`],
      ["failed", failures.length > 0 ? element("span", { class: "bad" }, failures.join("; ")) : null],
    ),
    last.findings.length > 0 && findingList(last.findings),
  );
}

function perInterrupt(sum: CellSum): Child {
  const each = exitsPerInterrupt(sum);
  if (each === null) return "–";
  const text = each === 0 ? "0" : String(Number(each.toPrecision(3)));
  return element("span", { class: `badge ${each === 0 ? "holds" : "leaks"}` }, text);
}

function byReason(sum: CellSum): string {
  const reasons = [...sum.exits].map(([reason, count]) => `${grouped(count)} ${reason}`);
  const all = [...sum.exits.values()].reduce((a, b) => a + b, 0);
  return reasons.length === 0 ? "0" : `${grouped(all)}: ${reasons.join(", ")}`;
}
