// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a view shows of the document: records, series, curves. Pure functions.
import { EMPTY, merge } from "./distribution";
import { type Child, element } from "./dom";
import type {
  Bench,
  Condition,
  CpuRecord,
  Distribution,
  Evaluation,
  Record as MeasuredRecord,
  MeterKind,
  Question,
  Series,
  Verdict,
  VerdictOutcome,
} from "./evaluation";

export type { MeasuredRecord };

/** A quantity of a meter, for the series switch. */
export type Quantity = { meter: MeterKind; series: Series };

/** What one curve is. */
export type Grouping = "domains" | "cpus" | "conditions";

/** A curve before it is drawn. */
export type Curve = { key: string; label: string; distribution: Distribution };

export function conditionName(condition: Condition): string {
  return condition.location ? `${condition.load}@${condition.location}` : condition.load;
}

const WORDS: { [series in Series]: string } = {
  lateness: "lateness of a wake-up",
  gap: "gap in a spinning loop",
  excess: "excess of a work quantum",
  "start-jitter": "start jitter",
  response: "response time",
  "period-late": "period too long by",
  "period-early": "period too short by",
  delivery: "timer to handler",
  "trapped-access": "one read of a register, page trapped",
  "mapped-access": "one read of a register, page mapped",
};

/** A series in words. */
export function seriesWords(series: Series): string {
  return WORDS[series];
}

/** Every quantity that was measured, the plan's first meter first. */
export function quantities(evaluation: Evaluation): Quantity[] {
  const order = evaluation.plan.meters.map((plan) => plan.meter);
  const found = new Map<string, Quantity>();
  for (const record of evaluation.records) {
    for (const cpu of record.cpus) {
      for (const { series } of cpu.series) {
        found.set(`${record.plan.meter}/${series}`, { meter: record.plan.meter, series });
      }
    }
  }
  const rank = ({ meter }: Quantity) => (order.includes(meter) ? order.indexOf(meter) : order.length);
  return [...found.values()].sort((a, b) => rank(a) - rank(b));
}

/** The conditions in the order of the plan, those of records without a place in it last. */
export function conditions(evaluation: Evaluation): string[] {
  const named = [...evaluation.plan.conditions, ...evaluation.records.map((record) => record.condition)];
  return [...new Set(named.map(conditionName))];
}

/** The domains in the order of the plan. */
export function domains(evaluation: Evaluation): string[] {
  const named = evaluation.plan.domains.map((domain) => domain.name);
  return [...new Set([...named, ...evaluation.records.map((record) => record.domain)])];
}

/** Records of a meter under a condition, in the order of the domains. */
export function recordsOf(evaluation: Evaluation, meter: MeterKind, condition: string): MeasuredRecord[] {
  const order = domains(evaluation);
  return evaluation.records
    .filter((record) => record.plan.meter === meter && conditionName(record.condition) === condition)
    .sort((a, b) => order.indexOf(a.domain) - order.indexOf(b.domain));
}

/** One CPU's distribution of a series. */
export function ofCpu(cpu: CpuRecord, series: Series, corrected: boolean): Distribution {
  const found = cpu.series.find((one) => one.series === series);
  return (corrected ? found?.corrected : null) ?? found?.seen ?? EMPTY;
}

const merged = new WeakMap<MeasuredRecord, Map<string, Distribution>>();

/** A record's distribution of a series over all its CPUs. Merged once: of many CPUs it takes a while. */
export function ofRecord(record: MeasuredRecord, series: Series, corrected: boolean): Distribution {
  const known = merged.get(record) ?? new Map<string, Distribution>();
  merged.set(record, known);
  const key = `${series} ${corrected}`;
  const all = known.get(key) ?? merge(record.cpus.map((cpu) => ofCpu(cpu, series, corrected)));
  known.set(key, all);
  return all;
}

/** Whether correcting for missed periods changes anything. */
export function hasCorrected(evaluation: Evaluation, quantity: Quantity): boolean {
  return evaluation.records.some(
    (record) =>
      record.plan.meter === quantity.meter &&
      record.cpus.some((cpu) => cpu.series.some((one) => one.series === quantity.series && one.corrected)),
  );
}

/** The curves of one chart: a condition's domains or CPUs, or a domain's conditions. */
export function curves(
  evaluation: Evaluation,
  quantity: Quantity,
  corrected: boolean,
  grouping: Grouping,
  facet: string,
): Curve[] {
  if (grouping === "conditions") {
    return evaluation.records
      .filter((record) => record.plan.meter === quantity.meter && record.domain === facet)
      .map((record) => ({
        key: conditionName(record.condition),
        label: conditionName(record.condition),
        distribution: ofRecord(record, quantity.series, corrected),
      }));
  }
  const records = recordsOf(evaluation, quantity.meter, facet);
  if (grouping === "domains") {
    return records.map((record) => ({
      key: record.domain,
      label: record.domain,
      distribution: ofRecord(record, quantity.series, corrected),
    }));
  }
  return records.flatMap((record) =>
    record.cpus.map((cpu) => ({
      key: `${record.domain}/${cpu.cpu}`,
      label: `${record.domain} CPU ${cpu.cpu}`,
      distribution: ofCpu(cpu, quantity.series, corrected),
    })),
  );
}

/** How grave an outcome is, to choose which of several a badge shows. */
const GRAVITY: { [outcome in VerdictOutcome]: number } = { holds: 0, inconclusive: 1, leaks: 2, fails: 3 };

/** The verdict with the gravest outcome; the first of equals. */
export function gravest(verdicts: readonly Verdict[]): Verdict | null {
  let found: Verdict | null = null;
  for (const verdict of verdicts) {
    if (found === null || GRAVITY[verdict.outcome] > GRAVITY[found.outcome]) found = verdict;
  }
  return found;
}

/** Verdicts on one question, in the order of the document; those on disturbances stand in the matrix. */
export function asked(evaluation: Evaluation, question: Question): Verdict[] {
  return evaluation.verdicts.filter((verdict) => verdict.question === question && !verdict.disturbance);
}

/** The simulated machine, if it ran on one. */
export function simulated(bench: Bench | undefined): Simulated | null {
  return typeof bench === "object" && "sim" in bench ? bench.sim : null;
}

/** What a simulated machine was made of. */
export type Simulated = Extract<Bench, { sim: unknown }>["sim"];

/** Whether a domain's times are those of software that plays a processor. */
export function isEmulated(evaluation: Evaluation, domain: string): boolean {
  const guests = (evaluation.transfers ?? []).flatMap((round) =>
    round.watched.filter((one) => one.domain === domain).map((one) => one.guest?.accelerator),
  );
  return (
    // A simulated machine may not know itself that it is one.
    simulated(evaluation.bench) !== null ||
    evaluation.records.some((record) => record.domain === domain && record.emulated) ||
    guests.includes("tcg")
  );
}

/** A domain's name where figures of it follow: emulated ones are marked. */
export function domainName(evaluation: Evaluation, domain: string): Child {
  return isEmulated(evaluation, domain)
    ? [domain, " ", element("small", { class: "emulated", title: EMULATED }, "emulated")]
    : domain;
}

const EMULATED = "Its instructions were run by software: its microseconds mean nothing.";

/** Round places for marks on a logarithmic axis: decades, with 2 and 5 where there is room. */
export function logMarks([from, to]: readonly [number, number]): number[] {
  const decades = Math.log10(to / from);
  const steps = decades > 3.2 ? [1] : decades > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const marks: number[] = [];
  for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) {
    for (const step of steps) {
      const mark = step * 10 ** power;
      if (mark >= from * 0.9999 && mark <= to * 1.0001) marks.push(Number(mark.toPrecision(6)));
    }
  }
  return marks;
}
