// SPDX-License-Identifier: Apache-2.0 OR MIT
// Who disturbs whom: rows, columns and cells of the matrix, and clocks. Pure functions.
import type {
  ClockRelation,
  Disturbance,
  Evaluation,
  Interval,
  TransferRecord,
  Verdict,
  Watched,
} from "./evaluation";

/** A disturbance as it is written: `block:host`, `cache:task`, `block:under:vm`. */
export function disturbanceName({ kind, side, domain }: Disturbance): string {
  return `${kind === "block" ? "block" : kind.load}:${side === "under" ? "under:" : ""}${domain}`;
}

/** What a verdict is about, besides its domain: the disturbance, the crash, or the condition. */
export function verdictSubject(verdict: Verdict): string {
  if (verdict.disturbance) return disturbanceName(verdict.disturbance);
  if (verdict.question === "crash") return "crash:host";
  const { load, place } = verdict.condition;
  return place ? `${load}@${place}` : load;
}

/** Every disturbance that was planned, made or judged: blocks first, then each load, each in the order of
 * the plan's domains. */
export function disturbances(evaluation: Evaluation): Disturbance[] {
  const all = [
    ...(evaluation.plan.transfer?.groups ?? []).flatMap((group) => group.disturbances),
    ...(evaluation.transfers ?? []).flatMap((round) => round.disturbance ?? []),
    ...evaluation.verdicts.flatMap((verdict) => verdict.disturbance ?? []),
  ];
  const once = new Map(all.map((one) => [disturbanceName(one), one]));
  const loads = ["cpu", "memory", "cache", "io"];
  const domains = evaluation.plan.domains.map((domain) => domain.name);
  const rank = ({ kind, side, domain }: Disturbance) => [
    kind === "block" ? -1 : loads.indexOf(kind.load),
    side === "under" ? 1 : 0,
    domains.indexOf(domain),
  ];
  return [...once.values()].sort((a, b) => {
    const [left, right] = [rank(a), rank(b)];
    const at = left.findIndex((value, index) => value !== right[index]);
    return at < 0 ? 0 : (left[at] ?? 0) - (right[at] ?? 0);
  });
}

/** Every domain that was watched, in the order of the plan. */
export function watchedDomains(evaluation: Evaluation): string[] {
  const seen = new Set([
    ...(evaluation.transfers ?? []).flatMap((round) => round.watched.map((one) => one.domain)),
    ...evaluation.verdicts.flatMap((verdict) => (verdict.disturbance ? verdict.domain : [])),
  ]);
  const planned = evaluation.plan.domains.map((domain) => domain.name).filter((name) => seen.delete(name));
  return [...planned, ...seen];
}

/** The verdict on one domain while this was done to that one. */
export function wallVerdict(evaluation: Evaluation, of: Disturbance, domain: string): Verdict | null {
  const name = disturbanceName(of);
  const found = evaluation.verdicts.find(
    (verdict) =>
      verdict.domain === domain && verdict.disturbance && disturbanceName(verdict.disturbance) === name,
  );
  return found ?? null;
}

/** Whether this is no wall but the domain's own disturbance, from inside: of a block the positive control. */
export function isOwn(of: Disturbance, domain: string): boolean {
  return of.domain === domain && of.side === "inside";
}

/** Of a positive control: whether the block was felt there, as far as its interval says. */
export function isFelt(verdict: Verdict): boolean {
  const { figures } = verdict;
  return !!figures && "transfer" in figures && figures.transfer.transfer.low > figures.transfer.tolerance;
}

/** The figure that a cell leads with: the transfer, or the largest factor. */
export function leading(verdict: Verdict): Interval | null {
  const { figures } = verdict;
  if (!figures) return null;
  if ("transfer" in figures) return figures.transfer.transfer;
  if (!("interference" in figures)) return null;
  const all = figures.interference.factors.map(([, interval]) => interval);
  return all.reduce<Interval | null>(
    (most, one) => (most === null || one.estimate > most.estimate ? one : most),
    null,
  );
}

/** A round in which this domain was watched. */
export type Round = { record: TransferRecord; watched: Watched };

/** The rounds of a cell: those that the verdict names, else all with this disturbance. */
export function roundsOf(evaluation: Evaluation, of: Disturbance, domain: string): Round[] {
  const name = disturbanceName(of);
  return (evaluation.transfers ?? []).flatMap((record) => {
    const watched = record.watched.find((one) => one.domain === domain);
    if (!watched || !record.disturbance || disturbanceName(record.disturbance) !== name) return [];
    return [{ record, watched }];
  });
}

/** The quiet round that is nearest in the order, of the same group. */
export function quietRound(evaluation: Evaluation, near: TransferRecord, domain: string): Round | null {
  let found: Round | null = null;
  for (const record of evaluation.transfers ?? []) {
    const watched = record.watched.find((one) => one.domain === domain);
    if (record.disturbance || !watched || record.group !== near.group || record.invalid.length > 0) continue;
    const distance = Math.abs(record.order - near.order);
    if (found === null || distance < Math.abs(found.record.order - near.order)) found = { record, watched };
  }
  return found;
}

/** Turns moments of a far clock into moments of the host's. Between two readings of the far clock its
 * offset is taken to change evenly, before and after them as between. */
export function toHost(relations: readonly ClockRelation[]): (far: number) => number {
  const [first] = relations;
  const last = relations[relations.length - 1];
  if (!first || !last) return (far) => far;
  const between = last.at - first.at;
  const slope = between > 0 ? (last.offset - first.offset) / between : 0;
  // far = at + offset + slope × (at − first.at), solved for at; sums near zero keep the digits.
  return (far) => first.at + (far - first.at - first.offset) / (1 + slope);
}

/** How far apart two moments may seem that were read on two clocks. */
export function uncertainty(relations: readonly ClockRelation[]): number {
  return Math.max(0, ...relations.map((one) => one.uncertainty));
}

/** A stretch of time on the host's clock, in seconds from the start of the round. */
export type Stretch = { from: number; to: number };

/** What a timeline shows, in seconds from the start of the round on the host's clock, latencies in ns. */
export type Trace = {
  /** Starts of the slots, and the worst sample that ended in each. */
  slots: { at: number; worst: number | null }[];
  /** Length of a slot. */
  slot: number;
  blocks: (Stretch & { sequence: number; cpu: number })[];
  windows: (Stretch & { block: number | null; worst: number | null })[];
  /** Blocks and latencies may lie this much further apart or nearer, in seconds. */
  uncertainty: number;
};

/** One domain's timeline with the blocks of its round, both on the host's clock. */
export function trace({ record, watched }: Round): Trace {
  const own = toHost(watched.clock ?? []);
  const blocked = toHost(record.blocks?.clock ?? []);
  const start = own(watched.timeline.start);
  const seconds = (host: number) => (host - start) / 1e9;
  const stretch = (of: { start: number; end: number }, clock: (far: number) => number): Stretch => ({
    from: seconds(clock(of.start)),
    to: seconds(clock(of.end)),
  });
  const { slot, worst } = watched.timeline;
  const sameClock = JSON.stringify(watched.clock ?? []) === JSON.stringify(record.blocks?.clock ?? []);
  return {
    slots: worst.map((value, index) => ({ at: (index * slot) / 1e9, worst: value })),
    slot: slot / 1e9,
    blocks: (record.blocks?.spans ?? []).map((span) => ({
      ...stretch(span, blocked),
      sequence: span.sequence,
      cpu: span.cpu,
    })),
    windows: (watched.windows ?? []).map((window) => ({
      ...stretch(window, own),
      block: window.block ?? null,
      worst: window.worst ?? null,
    })),
    uncertainty: sameClock
      ? 0
      : (uncertainty(watched.clock ?? []) + uncertainty(record.blocks?.clock ?? [])) / 1e9,
  };
}
