// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { ClockRelation, Disturbance, Evaluation, Verdict } from "../src/evaluation";
import { ratioAxis, ratioLocation, transferLocation } from "../src/interval";
import { asked, isEmulated } from "../src/select";
import { fraction } from "../src/wall-words";
import {
  blockCount,
  disturbanceName,
  disturbances,
  disturbanceVerdict,
  isFelt,
  isOwn,
  leading,
  ofDomain,
  quietRound,
  type Round,
  roundsOf,
  toHost,
  trace,
  verdictSubject,
  watchedDomains,
} from "../src/walls";

const walls = JSON.parse(readFileSync("fixtures/walls.json", "utf8")) as Evaluation;
const full = JSON.parse(readFileSync("fixtures/full.json", "utf8")) as Evaluation;

const named = (name: string): Disturbance => {
  const found = disturbances(walls).find((one) => disturbanceName(one) === name);
  assert.ok(found, name);
  return found;
};

test("rows are blocks, then loads, in the order of the plan; columns are who was watched", () => {
  assert.deepEqual(disturbances(walls).map(disturbanceName), [
    ..."host task container vm".split(" ").map((domain) => `block:${domain}`),
    "block:under:vm",
    ..."host task container vm".split(" ").map((domain) => `cpu:${domain}`),
    ..."host task container vm".split(" ").map((domain) => `cache:${domain}`),
  ]);
  assert.deepEqual(watchedDomains(walls), ["host", "task", "container", "vm"]);
  assert.deepEqual(disturbances(full), []);
  assert.deepEqual(watchedDomains(full), []);
});

test("every verdict on a disturbance has its cell, and none of them stands in another table", () => {
  const cells = disturbances(walls).flatMap((of) =>
    watchedDomains(walls).map((domain) => disturbanceVerdict(walls, of, domain)),
  );
  const all = walls.verdicts.filter((verdict) => verdict.disturbance);
  assert.equal(new Set(cells).size, all.length);
  assert.ok(all.length > 50);
  assert.ok(asked(walls, "interference").every((verdict) => !verdict.disturbance));
  assert.deepEqual(asked(walls, "transfer"), []);
});

test("only a block inside the domain itself is its control", () => {
  assert.ok(isOwn(named("block:vm"), "vm"));
  assert.ok(!isOwn(named("block:under:vm"), "vm"), "the host's block under a guest meets a wall");
  assert.ok(!isOwn(named("block:vm"), "host"));
  const verdict = (of: string, domain: string) => disturbanceVerdict(walls, named(of), domain) as Verdict;
  assert.ok(isFelt(verdict("block:task", "task")));
  assert.ok(!isFelt(verdict("block:task", "host")));
  assert.ok(!isFelt(verdict("cache:task", "task")), "a load is no control");
});

test("a cell leads with its transfer, or with its largest factor", () => {
  const verdict = (of: string, domain: string) => disturbanceVerdict(walls, named(of), domain) as Verdict;
  assert.ok((leading(verdict("block:host", "host"))?.estimate ?? 0) > 0.9);
  const loaded = verdict("cache:host", "container");
  assert.ok(loaded.figures && "interference" in loaded.figures);
  const estimates = loaded.figures.interference.factors.map(([, one]) => one.estimate);
  assert.equal(leading(loaded)?.estimate, Math.max(...estimates));
  assert.equal(leading(verdict("cache:container", "task")), null, "the round does not count");
  const shown = (decimals: number) =>
    [0.004, -0.004, -0.0004, -0.012, 0.98].map((value) => fraction(value, decimals));
  assert.deepEqual(shown(2), ["0.00", "0.00", "0.00", "−0.01", "0.98"]);
  assert.deepEqual(shown(3), ["0.004", "−0.004", "0.000", "−0.012", "0.980"]);
});

test("a verdict is named by what was done", () => {
  const subject = (id: string) => {
    const found = walls.verdicts.find((verdict) => verdict.id === id);
    return found && verdictSubject(found);
  };
  assert.equal(subject("transfer/vm/wakeup/block:under:vm"), "block:under:vm");
  assert.equal(subject("crash/vm/wakeup/crash:host"), "crash:host");
  assert.equal(subject("deadline/host/wakeup/cpu@others"), "cpu@others");
});

test("a far clock is turned into the host's, with its drift", () => {
  const relation = (at: number, offset: number): ClockRelation => ({
    at,
    offset,
    uncertainty: 5,
    exchanges: 3,
  });
  assert.equal(toHost([])(123), 123);
  assert.equal(toHost([relation(1000, -400)])(700), 1100);
  // The far clock gains 100 in 1000: at 500 it shows 500 − 200 + 50.
  const clock = toHost([relation(0, -200), relation(1000, -100)]);
  assert.ok(Math.abs(clock(350) - 500) < 0.1);
  assert.ok(Math.abs(clock(-200) - 0) < 0.1);
  assert.ok(Math.abs(clock(900) - 1000) < 0.1);
  // Before the first reading and after the last nothing is known of the drift: the offset stays.
  assert.equal(clock(-5200), -5000);
  assert.equal(clock(4900), 5000);
  const three = toHost([relation(0, 0), relation(1000, 100), relation(2000, 100)]);
  assert.ok(Math.abs(three(550) - 500) < 0.1 && Math.abs(three(1600) - 1500) < 0.1);
  // After days of uptime a ns is still a ns.
  const days = 30 * 86400e9;
  assert.equal(toHost([relation(days, -31e9)])(days - 31e9 + 7) - days, 7);
});

test("blocks of the host and latencies of a guest stand on one clock", () => {
  for (const name of ["block:vm", "block:under:vm", "block:host"]) {
    const of = named(name);
    for (const domain of watchedDomains(walls)) {
      const [round] = roundsOf(walls, of, domain);
      assert.ok(round);
      const { slots, blocks, windows, slot, uncertainty } = trace(round);
      const end = (slots[slots.length - 1]?.at ?? 0) + slot;
      assert.equal(blocks.length, 20);
      for (const block of blocks) {
        assert.ok(block.from > 0 && block.to < end, `${name} ${domain}: ${block.from} to ${block.to}`);
        const window = windows.find((one) => one.block === block.sequence);
        assert.ok(window && Math.abs(window.from - block.from) < 1e-3 && window.to > block.to);
      }
      const different = (domain === "vm") !== (name === "block:vm");
      assert.equal(uncertainty > 0, different, `${name} ${domain}`);
      // Where nearly all of a block crosses, its end holds the late sample.
      if (!isOwn(of, domain) && !(name === "block:under:vm" && domain === "vm")) continue;
      for (const { to } of blocks) {
        const near = slots
          .filter(({ at }) => Math.abs(at - to) < 3 * slot)
          .flatMap(({ worst }) => worst ?? []);
        assert.ok(Math.max(...near) > 25e6, `${name} ${domain} at ${to}`);
      }
    }
  }
});

test("a load is held against the nearest quiet round that counts", () => {
  const [loaded] = roundsOf(walls, named("cache:host"), "task");
  assert.ok(loaded);
  assert.equal(quietRound(walls, loaded.record, "task")?.record.id, "quiet/0/0");
  assert.equal(quietRound(walls, { ...loaded.record, group: 7 }, "task"), null);
});

test("emulated domains are known, by their records or by what ran their guest", () => {
  assert.ok(isEmulated(walls, "vm"));
  assert.ok(!isEmulated(full, "host"));
  const guest = structuredClone(walls);
  assert.ok(
    isEmulated({ ...full, bench: walls.bench ?? "local" }, "host"),
    "a simulated machine knows it not",
  );
  guest.bench = "local";
  for (const record of guest.records) record.emulated = false;
  assert.ok(!isEmulated(guest, "vm"));
  for (const round of guest.transfers ?? [])
    for (const one of round.watched) if (one.guest) one.guest.accelerator = "tcg";
  assert.ok(isEmulated(guest, "vm") && !isEmulated(guest, "task"));
});

test("axes of intervals keep everything inside", () => {
  const interval = (low: number, high: number) => ({
    estimate: (low + high) / 2,
    low,
    high,
    confidence: 0.95,
  });
  const axis = ratioAxis([interval(0.5, 3), interval(1, 40)], 1.5);
  for (const value of [0.5, 1, 40])
    assert.ok(ratioLocation(value, axis) > 0 && ratioLocation(value, axis) < 100);
  assert.ok(transferLocation(0) > 0 && transferLocation(1) < 100);
  assert.equal(transferLocation(-9), 0);
  assert.equal(transferLocation(9), 100);
});

test("the CPUs of a domain are one: of each moment the worst", () => {
  const record = structuredClone(roundsOf(walls, named("block:task"), "host")[0]?.record);
  assert.ok(record);
  const host = record.watched.find((one) => one.domain === "host");
  assert.ok(host);
  const alone = ofDomain(record, "host");
  const { slot, start, worst } = host.timeline;
  record.watched.push({
    ...structuredClone(host),
    cpu: 9,
    missed: 3,
    // It began a slot later, and its third sample is the worst of all.
    timeline: { start: start + slot + 1000, slot, worst: [null, 1, 9e9] },
    windows: (host.windows ?? []).map((window, index) => ({ ...window, worst: index === 1 ? 9e9 : null })),
  });
  const both = ofDomain(record, "host");
  assert.ok(alone && both);
  assert.equal(both.cpus, "1,9");
  assert.equal(both.watched.missed, host.missed + 3);
  assert.equal(both.watched.seen.samples, 2 * host.seen.samples);
  const expected = worst.map((one, index) => (index === 3 ? 9e9 : one));
  assert.deepEqual(both.watched.timeline.worst, expected);
  const windows = (of: Round) => trace(of).windows.map((window) => window.worst);
  assert.deepEqual(
    windows(both),
    windows(alone).map((one, index) => (index === 1 ? 9e9 : one)),
  );
  assert.equal(ofDomain(record, "nobody"), null);
  assert.equal(blockCount(record), 20);
});

test("a round in which nothing was measured still has its blocks", () => {
  const record = structuredClone(roundsOf(walls, named("block:task"), "host")[0]?.record);
  const host = record?.watched.find((one) => one.domain === "host");
  assert.ok(record && host);
  host.timeline = { start: 0, slot: 4e6, worst: [] };
  host.windows = [];
  const round = ofDomain(record, "host");
  assert.ok(round);
  const { blocks, slots } = trace(round);
  assert.deepEqual(slots, []);
  assert.equal(blocks[0]?.from, 0);
  assert.ok((blocks[19]?.to ?? 0) < 10);
});
