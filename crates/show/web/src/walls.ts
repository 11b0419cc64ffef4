// SPDX-License-Identifier: Apache-2.0 OR MIT
// Who disturbs whom: rows, columns and cells of the matrix, and clocks. Pure functions.
import { merge } from "./distribution";
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
  const { load, location } = verdict.condition;
  return location ? `${load}@${location}` : load;
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
export function disturbanceVerdict(evaluation: Evaluation, of: Disturbance, domain: string): Verdict | null {
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

/** Of a positive control: whether the block was felt there, as the verdict says. */
export function isFelt(verdict: Verdict): boolean {
  return verdict.question === "transfer" && verdict.outcome === "leaks";
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

/** A round in which this domain was watched; where it has several CPUs, `watched` is all of them together. */
export type Round = { record: TransferRecord; watched: Watched; cpus: string };

/** What a domain saw in a round; null if it was not watched in it. */
export function ofDomain(record: TransferRecord, domain: string): Round | null {
  const all = record.watched.filter((one) => one.domain === domain);
  const [first] = all;
  if (first === undefined) return null;
  return {
    record,
    watched: all.length > 1 ? together(first, all) : first,
    cpus: all.map((one) => one.cpu).join(","),
  };
}

/** The CPUs of a domain as one: of each moment the worst. */
function together(first: Watched, all: readonly Watched[]): Watched {
  const { slot } = first.timeline;
  const started = all.filter((one) => one.timeline.worst.length > 0);
  const start = Math.min(...started.map((one) => one.timeline.start));
  const worst: (number | null)[] = [];
  const higher = (a: number | null | undefined, b: number | null | undefined) =>
    a == null ? (b ?? null) : b == null ? a : Math.max(a, b);
  for (const { timeline } of started) {
    const shift = Math.round((timeline.start - start) / slot);
    timeline.worst.forEach((value, index) => {
      worst[index + shift] = higher(worst[index + shift], value);
    });
  }
  return {
    ...first,
    timeline: {
      start: started.length > 0 ? start : 0,
      slot,
      worst: Array.from(worst, (value) => value ?? null),
    },
    windows: (first.windows ?? []).map((window, index) => ({
      ...window,
      worst: all.map((one) => one.windows?.[index]?.worst).reduce(higher, null) ?? null,
    })),
    seen: merge(all.map((one) => one.seen)),
    missed: all.reduce((sum, one) => sum + one.missed, 0),
    invalid: all.flatMap((one) => one.invalid),
    findings: all.flatMap((one) => one.findings),
  };
}

/** The rounds of a cell: all with this disturbance in which the domain was watched. */
export function roundsOf(evaluation: Evaluation, of: Disturbance, domain: string): Round[] {
  const name = disturbanceName(of);
  return (evaluation.transfers ?? [])
    .filter((record) => record.disturbance && disturbanceName(record.disturbance) === name)
    .flatMap((record) => ofDomain(record, domain) ?? []);
}

/** How many blocks were made: those of several CPUs at once are one. */
export function blockCount(record: TransferRecord): number {
  return new Set(record.blocks?.spans.map((span) => span.sequence)).size;
}

/** The quiet round that is nearest in the order, of the same group. */
export function quietRound(evaluation: Evaluation, near: TransferRecord, domain: string): Round | null {
  let found: Round | null = null;
  for (const record of evaluation.transfers ?? []) {
    const round = ofDomain(record, domain);
    if (record.disturbance || !round || record.group !== near.group || record.invalid.length > 0) continue;
    const distance = Math.abs(record.order - near.order);
    if (found === null || distance < Math.abs(found.record.order - near.order)) found = round;
  }
  return found;
}

/** Turns moments of a far clock into moments of the host's. Between two readings of the far clock its
 * offset is taken to change evenly; before the first and after the last it stays. */
export function toHost(relations: readonly ClockRelation[]): (far: number) => number {
  const [first] = relations;
  const last = relations[relations.length - 1];
  if (!first || !last) return (far) => far;
  const offset = (host: number): number => {
    if (host <= first.at) return first.offset;
    const after = relations.findIndex((one) => one.at >= host);
    const [one, two] = [relations[after - 1], relations[after]];
    if (!one || !two) return last.offset;
    return one.offset + ((two.offset - one.offset) * (host - one.at)) / Math.max(two.at - one.at, 1);
  };
  return (far) => {
    // The offset changes by parts in a million: each turn is that much nearer to the moment.
    let host = far - first.offset;
    for (let turn = 0; turn < 4; turn++) host = far - offset(host);
    return host;
  };
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
  const [firstBlock] = record.blocks?.spans ?? [];
  // Where nothing was measured the first block is as good a start as any.
  const start =
    watched.timeline.worst.length > 0 ? own(watched.timeline.start) : blocked(firstBlock?.start ?? 0);
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
