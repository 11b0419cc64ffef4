// SPDX-License-Identifier: Apache-2.0 OR MIT
// Exits of cells, summed over all that was measured in them. Without the browser.
import type { CellExitReport, Evaluation } from "./evaluation";

/** The sum of a cell's reports: of its valid runs, and of its valid parts of rounds. */
export interface CellSum {
  readonly domain: string;
  /** The last of its reports. */
  readonly last: CellExitReport;
  readonly reports: number;
  /** Nanoseconds. */
  readonly observed: number;
  readonly exits: ReadonlyMap<string, number>;
  readonly interruptExits: number;
  /** Null where one of the reports does not tell. */
  readonly interrupts: number | null;
  readonly failures: readonly string[];
}

/** Exits because of interrupts for each interrupt; null where none was counted. */
export function exitsPerInterrupt(sum: CellSum): number | null {
  return sum.interrupts ? sum.interruptExits / sum.interrupts : null;
}

/** All cells, in the order of the plan. */
export function cellSums(evaluation: Evaluation): CellSum[] {
  return evaluation.plan.domains.flatMap(({ name }) => sumOf(evaluation, name) ?? []);
}

function sumOf(evaluation: Evaluation, domain: string): CellSum | null {
  const runs = evaluation.records
    .filter((record) => record.domain === domain)
    .flatMap((record) =>
      record.runs.filter((run) => run.invalid.length === 0).flatMap((run) => run.cell ?? []),
    );
  const rounds = (evaluation.transfers ?? []).flatMap((round) =>
    round.watched
      .filter((one) => one.domain === domain && one.invalid.length === 0)
      .flatMap((one) => one.cell ?? []),
  );
  const all: CellExitReport[] = [...runs, ...rounds];
  const last = all[all.length - 1];
  if (!last) return null;
  const exits = new Map<string, number>();
  for (const { reason, count } of all.flatMap((report) => report.exits))
    exits.set(reason, (exits.get(reason) ?? 0) + count);
  const sum = (of: (report: CellExitReport) => number) => all.reduce((total, report) => total + of(report), 0);
  return {
    domain,
    last,
    reports: all.length,
    observed: sum((report) => report.observed),
    exits: new Map([...exits].sort(([a], [b]) => (a < b ? -1 : 1))),
    interruptExits: sum((report) => report.interrupt_exits),
    interrupts: all.every((report) => report.interrupts != null)
      ? sum((report) => report.interrupts ?? 0)
      : null,
    failures: all.flatMap((report) => report.failure ?? []),
  };
}
