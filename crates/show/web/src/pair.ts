// SPDX-License-Identifier: Apache-2.0 OR MIT
// One pair of the matrix: its charts in time and their data.
import { choice, element } from "./dom";
import type { PairDetail, PairRound, Trace } from "./elements";
import { all, text } from "./render";
import { onThemeChange } from "./theme";
import { type Stretch, TimelineChart } from "./timeline-chart";

type State = {
  of: PairDetail;
  /** Which of the pair's rounds. */
  round: number;
  kind: "log" | "linear";
  /** The pair alone, or all domains of the round. */
  who: "pair" | "everyone";
  range: Stretch | null;
};

/** The panel under the matrix. */
export class PairPanel {
  readonly element = element("div", { id: "pair", class: "pair", role: "region", "aria-live": "off" });
  private state: State | null = null;
  private charts: TimelineChart[] = [];
  private readonly plot = element("div", { class: "timelines" });

  constructor(private readonly traces: readonly Trace[]) {
    onThemeChange(() => {
      for (const chart of this.charts) chart.draw();
    });
  }

  /** Shows another pair. */
  show(of: PairDetail): void {
    const { kind = "log", who = "pair" } = this.state ?? {};
    this.state = { of, round: 0, kind, who, range: null };
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

  private round(): PairRound | undefined {
    return this.state?.of.rounds[this.state.round];
  }

  private render(): void {
    const { state } = this;
    const round = this.round();
    if (state === null) return;
    this.element.setAttribute("aria-label", state.of.title.map((span) => span.text).join(""));
    this.element.replaceChildren(
      element("h3", {}, text(state.of.title)),
      element("p", {}, text(state.of.statement)),
    );
    if (round === undefined) {
      this.charts = [];
      return;
    }
    const zoom = element(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      ...(
        [
          ["Zoom in on time", "+", () => this.charts[0]?.zoom(0.5)],
          ["Zoom out of time", "−", () => this.charts[0]?.zoom(2)],
          ["Show the whole round", "All", () => this.set({ range: null })],
        ] as const
      ).map(([label, name, act]) =>
        element("button", { type: "button", "aria-label": label, title: label, onclick: act }, name),
      ),
    );
    this.element.append(
      this.switches(state, round),
      element("div", { class: "plot" }, zoom, legend(round), this.plot),
      ...all(round.elements),
    );
    this.drawCharts();
  }

  private switches(state: State, round: PairRound): HTMLElement {
    const { rounds } = state.of;
    return element(
      "div",
      { class: "switches" },
      choice(
        "Latency axis",
        [
          ["log", "log"],
          ["linear", "linear"],
        ] as const,
        state.kind,
        (kind) => this.set({ kind }),
      ),
      round.everyone.length > 1 &&
        choice(
          "Watched",
          [
            ["pair", round.pair_name],
            ["everyone", "everyone at that time"],
          ] as const,
          state.who,
          (who) => this.set({ who }),
        ),
      rounds.length > 1 &&
        choice(
          "Round",
          rounds.map(({ id }, index) => [String(index), id] as const),
          String(state.round),
          (index) => this.set({ round: Number(index), range: null }),
        ),
    );
  }

  private drawCharts(): void {
    const { state } = this;
    const round = this.round();
    if (!state || !round) return;
    const lines = (
      state.who === "everyone" && round.everyone.length > 1 ? round.everyone : round.pair
    ).flatMap(({ title, trace }) => {
      const found = this.traces[trace];
      return found === undefined ? [] : [{ title, trace: found }];
    });
    const end = Math.max(...lines.map(({ trace }) => trace.worst.length * trace.slot), 1e-3);
    const range = state.range ?? { from: 0, to: end };
    const values = latencyRange(
      lines.flatMap(({ trace }) => trace.worst.flatMap((worst) => worst ?? [])),
      state.kind,
    );
    const focused = document.activeElement;
    while (this.charts.length > lines.length) this.charts.pop();
    const figures = lines.map(({ title }, index) => {
      const chart = this.charts[index] ?? new TimelineChart();
      this.charts[index] = chart;
      return element("figure", {}, lines.length > 1 && element("figcaption", {}, title), chart.element);
    });
    this.plot.replaceChildren(...figures);
    lines.forEach(({ title, trace }, index) => {
      this.charts[index]?.update({
        trace,
        kind: state.kind,
        values,
        range,
        height: lines.length > 1 ? 110 + (index === lines.length - 1 ? 16 : 0) : 250,
        named: index === lines.length - 1,
        label: `Worst latency in time, ${title}`,
        onZoom: (to) => this.set({ range: to && within(to, end) }),
      });
    });
    if (focused instanceof HTMLElement && this.plot.contains(focused)) focused.focus({ preventScroll: true });
  }
}

/** Legend of colours and shades. */
function legend(round: PairRound): HTMLElement {
  return element(
    "p",
    { class: "key" },
    ...round.legend.map(([name, words]) => {
      const curve = name.startsWith("curve-");
      const style = curve ? `background: var(--${name})` : null;
      return element("span", {}, element("i", { class: `swatch ${curve ? "slot" : name}`, style }), words);
    }),
  );
}

function within({ from, to }: Stretch, end: number): Stretch | null {
  const stretch = { from: Math.max(from, 0), to: Math.min(to, end) };
  return stretch.from <= 0 && stretch.to >= end ? null : stretch;
}

/** The axis that holds all values. */
function latencyRange(values: readonly number[], kind: "log" | "linear"): readonly [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, 1];
  for (const value of values) {
    if (value > 0 && value < low) low = value;
    if (value > high) high = value;
  }
  if (kind === "linear") return [0, high * 1.08];
  return [Math.max(Math.min(low, high) / 1.6, 1), high * 1.6];
}
