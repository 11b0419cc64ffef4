// SPDX-License-Identifier: Apache-2.0 OR MIT
// One pair of the matrix: what was done, what the watched domain saw of it in time, and how it was compared.
import { type Child, choice, element, findingList, pairs } from "../dom";
import type { Disturbance, Evaluation, Verdict } from "../evaluation";
import { exposure, grouped, namedCpus, plural, prose, quantileName, ratio, shell, time } from "../figures";
import { domains } from "../select";
import { COLOURS, onThemeChange } from "../theme";
import { TimelineChart } from "../timeline-chart";
import { disturbanceWord, fraction } from "../wall-words";
import {
  blockCount,
  disturbanceName,
  disturbanceVerdict,
  leading,
  ofDomain,
  quietRound,
  type Round,
  roundsOf,
  type Stretch,
  trace,
  uncertainty,
} from "../walls";
import { windowStrips } from "./window-strips";

type State = {
  of: Disturbance;
  domain: string;
  /** Which of the pair's rounds. */
  round: number;
  kind: "log" | "linear";
  /** The pair alone, or everyone who was watched in that round. */
  who: "pair" | "all";
  range: Stretch | null;
};

/** A chart's line: whose, in which round. */
type Line = { title: string; domain: string; round: Round };

/** The panel under the matrix. */
export class Pair {
  readonly element = element("div", { id: "pair", class: "pair", role: "region", "aria-live": "off" });
  private state: State | null = null;
  private charts: TimelineChart[] = [];
  private readonly plot = element("div", { class: "timelines" });

  constructor(private readonly evaluation: Evaluation) {
    onThemeChange(() => {
      for (const chart of this.charts) chart.draw();
    });
  }

  /** Shows another pair. */
  show(of: Disturbance, domain: string): void {
    const { kind = "log", who = "pair" } = this.state ?? {};
    this.state = { of, domain, round: 0, kind, who, range: null };
    this.render();
  }

  private set(change: Partial<State>): void {
    if (this.state === null) return;
    const within = document.activeElement;
    const focused = within instanceof HTMLInputElement ? { name: within.name, value: within.value } : null;
    Object.assign(this.state, change);
    if (Object.keys(change).every((key) => key === "range")) {
      this.drawCharts();
      return;
    }
    this.render();
    if (focused === null) return;
    for (const input of this.element.querySelectorAll<HTMLInputElement>("input[type=radio]"))
      if (input.name === focused.name && input.value === focused.value) input.focus();
  }

  private rounds(): Round[] {
    return this.state === null ? [] : roundsOf(this.evaluation, this.state.of, this.state.domain);
  }

  private render(): void {
    const { state } = this;
    if (state === null) return;
    const { of, domain } = state;
    const verdict = disturbanceVerdict(this.evaluation, of, domain);
    const rounds = this.rounds();
    const round = rounds[state.round] ?? rounds[0];
    this.element.setAttribute("aria-label", `${disturbanceName(of)} seen from ${domain}`);
    this.element.replaceChildren(
      element(
        "h3",
        {},
        element("code", {}, disturbanceName(of)),
        " seen from ",
        element("b", {}, domain),
        " ",
        ...(verdict ? [mark(of, verdict)] : []),
      ),
      element("p", {}, verdict ? prose(verdict.statement) : "No verdict was drawn from it."),
    );
    if (round === undefined) {
      this.charts = [];
      return;
    }
    const curve = Math.max(domains(this.evaluation).indexOf(domain), 0);
    const zoom = element(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      ...(
        [
          ["Zoom in on time", "+", () => this.charts[0]?.zoom(0.5)],
          ["Zoom out of time", "−", () => this.charts[0]?.zoom(2)],
          ["Show the whole round", "All", () => this.set({ range: null })],
        ] as const
      ).map(([label, text, act]) =>
        element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text),
      ),
    );
    this.element.append(
      this.switches(rounds, round),
      element("div", { class: "plot" }, zoom, key(round, curve), this.plot),
      element("p", { class: "remark" }, ...clockWords(round)),
      element("div", { class: "two-columns" }, this.facts(round, verdict), windowStrips(round) ?? ""),
    );
    const amiss = [
      ...round.record.invalid,
      ...round.watched.invalid,
      ...round.record.findings,
      ...round.watched.findings,
    ];
    if (amiss.length > 0) this.element.append(findingList(amiss));
    this.drawCharts();
  }

  private switches(rounds: readonly Round[], round: Round): HTMLElement {
    const { state } = this;
    const others = round.record.watched.length > 1;
    return element(
      "div",
      { class: "switches" },
      choice(
        "Latency axis",
        [
          ["log", "log"],
          ["linear", "linear"],
        ] as const,
        state?.kind ?? "log",
        (kind) => this.set({ kind }),
      ),
      others &&
        choice(
          "Watched",
          [
            ["pair", round.record.blocks ? "the pair" : "with and without"],
            ["all", "everyone at that time"],
          ] as const,
          state?.who ?? "pair",
          (who) => this.set({ who }),
        ),
      rounds.length > 1 &&
        choice(
          "Round",
          rounds.map(({ record }, index) => [String(index), record.id] as const),
          String(state?.round ?? 0),
          (index) => this.set({ round: Number(index), range: null }),
        ),
    );
  }

  private lines(round: Round): Line[] {
    const { record, watched } = round;
    if (this.state?.who === "all" && record.watched.length > 1) {
      return [...new Set(record.watched.map((one) => one.domain))].flatMap((domain) => {
        const of = ofDomain(record, domain);
        return of === null ? [] : { title: domain, domain, round: of };
      });
    }
    const own: Line = { title: watched.domain, domain: watched.domain, round };
    const quiet = record.blocks ? null : quietRound(this.evaluation, record, watched.domain);
    if (quiet === null) return [own];
    return [
      { ...own, title: `${watched.domain}, under the load` },
      { title: `${watched.domain}, quiet`, domain: watched.domain, round: quiet },
    ];
  }

  private drawCharts(): void {
    const { state } = this;
    const rounds = this.rounds();
    const round = state && (rounds[state.round] ?? rounds[0]);
    if (!state || !round) return;
    const lines = this.lines(round);
    const traces = lines.map((line) => trace(line.round));
    const ends = traces.map(({ slots, slot }) => (slots[slots.length - 1]?.at ?? 0) + slot);
    const range = state.range ?? { from: 0, to: Math.max(...ends, 1e-3) };
    const values = latencyRange(
      traces.flatMap(({ slots }) => slots.flatMap(({ worst }) => worst ?? [])),
      state.kind,
    );
    const focused = document.activeElement;
    while (this.charts.length > lines.length) this.charts.pop();
    const order = domains(this.evaluation);
    const figures = lines.map((line, index) => {
      const chart = this.charts[index] ?? new TimelineChart();
      this.charts[index] = chart;
      return element("figure", {}, lines.length > 1 && element("figcaption", {}, line.title), chart.element);
    });
    this.plot.replaceChildren(...figures);
    lines.forEach((line, index) => {
      const shown = traces[index];
      if (shown === undefined) return;
      this.charts[index]?.update({
        trace: shown,
        curve: Math.max(order.indexOf(line.domain), 0),
        kind: state.kind,
        values,
        range,
        height: lines.length > 1 ? 110 + (index === lines.length - 1 ? 16 : 0) : 250,
        named: index === lines.length - 1,
        label: `Worst latency in time, ${line.title}`,
        onZoom: (to) => this.set({ range: to && within(to, Math.max(...ends)) }),
      });
    });
    if (focused instanceof HTMLElement && this.plot.contains(focused)) focused.focus({ preventScroll: true });
  }

  private facts(round: Round, verdict: Verdict | null): HTMLElement {
    const { record, watched } = round;
    const { blocks, load } = record;
    const figures = verdict?.figures;
    const transfer = figures && "transfer" in figures ? figures.transfer : null;
    const factors = figures && "interference" in figures ? figures.interference.factors : [];
    const interval = verdict && leading(verdict);
    return pairs(
      [
        "blocks",
        blocks != null &&
          `${plural(blockCount(record), "block")} of ${time(blocks.length)} asked for${transfer ? `, ${time(transfer.length)} in the median` : ""}, ${MADE_BY[blocks.kind]}`,
      ],
      [
        "load",
        (load?.stressors ?? []).map((one) =>
          element(
            "div",
            {},
            element("code", {}, shell(one.command)),
            ` on ${namedCpus(one.cpus)}, ${time(one.cpu_time)} of CPU time`,
            one.failure != null && element("span", { class: "bad" }, `: ${one.failure}`),
          ),
        ),
      ],
      [
        "transfer",
        transfer !== null &&
          interval != null &&
          `τ = ${fraction(interval.estimate, 3)}, from ${fraction(interval.low, 3)} to ${fraction(interval.high, 3)} (${(interval.confidence * 100).toFixed(0)} %): median excess ${time(transfer.excess)} ÷ length of a block`,
      ],
      [
        "permutation test",
        transfer !== null &&
          `p = ${transfer.p_value < 0.001 ? transfer.p_value.toExponential(0) : transfer.p_value.toPrecision(2)}: the chance of so large an excess if blocks made none`,
      ],
      [
        "factors",
        factors.length > 0 &&
          factors
            .map(
              ([part, one]) =>
                `${quantileName(part)} ×${ratio(one.estimate)} (${ratio(one.low)} to ${ratio(one.high)})`,
            )
            .join(", "),
      ],
      [
        "watched",
        `${watched.domain} on CPU ${round.cpus}: ${grouped(watched.seen.samples)} samples in ${time(record.duration)}, worst ${watched.seen.max == null ? "–" : time(watched.seen.max)}, ${plural(watched.missed, "period")} missed`,
      ],
      ["verdict rests on", verdict && `${exposure(verdict.exposure)}; ${verdict.records.join(", ")}`],
      ["round", `${record.id}, number ${record.order}, began ${record.started}`],
    );
  }
}

function mark(of: Disturbance, verdict: Verdict): Child {
  const { sign, word, name } = disturbanceWord(of, verdict);
  return element("span", { class: `badge ${name}` }, `${sign} ${word}`);
}

/** What the shades mean, with what is not known of the clocks. */
function key({ record, watched }: Round, curve: number): HTMLElement {
  const blocks = record.blocks != null;
  const controls = (watched.windows ?? []).length > 0;
  const swatch = (name: string, words: string, style: string | null = null) =>
    element("span", {}, element("i", { class: `swatch ${name}`, style }), words);
  return element(
    "p",
    { class: "key" },
    swatch(
      "slot",
      `worst sample of each ${time(watched.timeline.slot)}, where it ended`,
      `background: var(--curve-${curve % COLOURS})`,
    ),
    blocks && swatch("block", "block"),
    controls && swatch("with", "window with a block"),
    controls && swatch("control", "control window"),
  );
}

/** How blocks of each kind are made. */
const MADE_BY = {
  module: "interrupts and preemption off",
  spin: "by a spinning thread of FIFO 99",
  cell: "by the cell itself, interrupts masked",
} as const;

/** How the clocks of latencies and blocks relate. */
function clockWords({ record, watched }: Round): Child[] {
  const relations = watched.clock ?? [];
  const blocked = record.blocks?.clock ?? [];
  const words: string[] = [];
  const tell = (whose: string, of: typeof relations) => {
    const [first] = of;
    const last = of[of.length - 1];
    if (!first || !last) return;
    const drift = last.at > first.at ? ((last.offset - first.offset) / (last.at - first.at)) * 1e6 : 0;
    words.push(
      `${whose} clock ${first.offset < 0 ? "is behind" : "is ahead of"} the host’s by ${time(Math.abs(first.offset))}, known within ±${time(uncertainty(of))} from ${plural(first.exchanges, "exchange")} before and after${Math.abs(drift) >= 0.05 ? `, and ran ${drift > 0 ? "fast" : "slow"} by ${Math.abs(drift).toPrecision(2)} ppm` : ""}.`,
    );
  };
  tell(`${watched.domain}’s`, relations);
  if (JSON.stringify(relations) !== JSON.stringify(blocked))
    tell(`${record.disturbance?.domain ?? "The blocked kernel"}’s`, blocked);
  if (words.length === 0 && record.blocks) words.push("Latencies and blocks were read on the same clock.");
  return [...words.map((one) => `${one} `), "Drag to zoom, double-click to see all."];
}

function within({ from, to }: Stretch, end: number): Stretch | null {
  const stretch = { from: Math.max(from, 0), to: Math.min(to, end) };
  return stretch.from <= 0 && stretch.to >= end ? null : stretch;
}

/** The axis that holds all values. */
function latencyRange(all: readonly number[], kind: "log" | "linear"): readonly [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, 1];
  for (const value of all) {
    if (value > 0 && value < low) low = value;
    if (value > high) high = value;
  }
  if (kind === "linear") return [0, high * 1.08];
  return [Math.max(Math.min(low, high) / 1.6, 1), high * 1.6];
}
