// SPDX-License-Identifier: Apache-2.0 OR MIT
// The histograms and their switches, which other parts of the page follow.
import { Chart, type Unit } from "./chart";
import { type AxisKind, type Distribution, merge, type Range, wholeRange } from "./distribution";
import { choice, element } from "./dom";
import type { Curve, Facet, Grouping, LatencyChart, LatencyView } from "./elements";
import type { View } from "./plot";
import { choose } from "./state";
import { COLOURS, curveDash, lightWhilePrinting, onThemeChange } from "./theme";

/** The choice of all facets, side by side. */
const ALL = "\u0000all";

type State = {
  of: LatencyView;
  /** Number of the grouping. */
  grouping: number;
  /** A condition, or a domain if the curves are conditions. */
  facet: string;
  view: View;
  kind: AxisKind;
  unit: Unit;
  range: Range | null;
  hidden: Set<string>;
};

/** The legend: a button for each curve, its maximum beside its name. */
function legend(
  of: readonly Curve[],
  hidden: ReadonlySet<string>,
  toggle: (key: string) => void,
): HTMLElement {
  return element(
    "div",
    { class: "legend", role: "group", "aria-label": "Curves" },
    ...of.map((curve, index) => {
      const dash = curveDash(index);
      const style = dash.length > 0 ? "dashed" : "solid";
      return element(
        "button",
        {
          type: "button",
          "data-key": curve.label,
          "aria-pressed": String(!hidden.has(curve.label)),
          title: hidden.has(curve.label) ? "Show this curve" : "Hide this curve",
          onclick: () => toggle(curve.label),
        },
        element("i", {
          class: "swatch line",
          style: `border-top: 3px ${style} var(--curve-${index % COLOURS})`,
        }),
        element("span", { class: "name" }, curve.label),
        element("span", { class: "max" }, "max ", element("b", {}, curve.max_text)),
        element("span", { class: "samples" }, curve.samples_text),
      );
    }),
  );
}

/** The switches, the charts and their legend. */
export class LatencySection {
  readonly elements: HTMLElement[];
  private readonly switches = element("div", { class: "switches" });
  private readonly charts = element("div", { class: "charts" });
  private readonly legend = element("div", {});
  private readonly note = element("p", { class: "remark" });
  private drawn: Chart[] = [];
  private readonly state: State;
  private readonly merged = new Map<Curve, Distribution>();

  constructor(private readonly chart: LatencyChart) {
    const first = chart.views[0] as LatencyView;
    this.state = {
      of: first,
      grouping: 0,
      facet: first.groupings[0]?.facets[0]?.name ?? "",
      view: "histogram",
      kind: "log",
      unit: "us",
      range: null,
      hidden: new Set(),
    };
    const zoom = element(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      ...(
        [
          ["Zoom in", "+", () => this.drawn[0]?.zoom(0.5)],
          ["Zoom out", "−", () => this.drawn[0]?.zoom(2)],
          ["Show all", "All", () => this.set({ range: null })],
        ] as const
      ).map(([label, text, act]) =>
        element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text),
      ),
    );
    this.elements = [
      this.switches,
      element("div", { class: "plot" }, zoom, this.charts),
      this.legend,
      this.note,
    ];
    this.render();
    onThemeChange(() => {
      for (const chart of this.drawn) chart.draw();
    });
    let before: string | null = null;
    lightWhilePrinting(
      () => {
        // Tabs do not work on paper: all conditions are printed.
        before = this.state.facet;
        if (this.facetNames().length > 1) this.set({ facet: ALL });
        for (const chart of this.drawn) chart.draw();
      },
      () => {
        if (before !== null) this.set({ facet: before });
        before = null;
      },
    );
  }

  private set(change: Partial<State>): void {
    const within = document.activeElement;
    const focused = within instanceof HTMLInputElement ? { name: within.name, value: within.value } : null;
    const zoomOnly = Object.keys(change).every((key) => key === "range");
    Object.assign(this.state, change);
    if (zoomOnly) {
      this.drawCharts();
      return;
    }
    this.render();
    // The switches were made anew; the keyboard stays where it was.
    if (focused !== null) {
      for (const input of document.querySelectorAll<HTMLInputElement>("input[type=radio]")) {
        if (input.name === focused.name && input.value === focused.value) input.focus();
      }
    }
  }

  private grouping(): Grouping {
    return this.state.of.groupings[this.state.grouping] as Grouping;
  }

  private facetNames(): string[] {
    return this.grouping().facets.map((facet) => facet.name);
  }

  private render(): void {
    const names = this.facetNames();
    const { state } = this;
    if (state.facet !== ALL && !names.includes(state.facet)) state.facet = names[0] ?? "";
    this.renderSwitches(names);
    this.drawCharts();
    this.renderLegend();
    const all = state.facet === ALL || !this.grouping().by_condition;
    choose(state.of.key, all ? "" : state.facet);
  }

  private renderSwitches(names: string[]): void {
    const { state } = this;
    const facets: (readonly [string, string])[] = names.map((name) => [name, name] as const);
    if (names.length > 1) facets.push([ALL, "all side by side"]);
    const { views } = this.chart;
    const quantities = views.filter((view) => !view.corrected);
    const { groupings, quantity, corrected } = state.of;
    const both = views.filter((view) => view.quantity === quantity);
    this.switches.replaceChildren(
      choice(this.grouping().facet, facets, state.facet, (facet) => this.set({ facet, range: null })),
      choice(
        "Show",
        [
          ["histogram", "histogram"],
          ["survival", "share later than"],
        ] as const,
        state.view,
        (view) => this.set({ view }),
      ),
      choice(
        "Time axis",
        [
          ["log", "log"],
          ["linear", "linear"],
        ] as const,
        state.kind,
        (kind) => this.set({ kind, range: null }),
      ),
      choice(
        "Unit",
        [
          ["us", "µs"],
          ["ms", "ms"],
        ] as const,
        state.unit,
        (unit) => this.set({ unit }),
      ),
      ...(quantities.length > 1
        ? [
            choice(
              "Quantity",
              quantities.map((of) => [of.quantity, of.quantity] as const),
              quantity,
              (chosen) => {
                const of = quantities.find((one) => one.quantity === chosen);
                if (of) this.set({ of, range: null });
              },
            ),
          ]
        : []),
      ...(both.length > 1
        ? [
            choice(
              "Missed periods",
              [
                ["seen", "as seen"],
                ["corrected", "corrected"],
              ] as const,
              corrected ? "corrected" : "seen",
              (chosen) => {
                const of = both.find((one) => one.corrected === (chosen === "corrected"));
                if (of) this.set({ of });
              },
            ),
          ]
        : []),
      ...(groupings.length > 1
        ? [
            choice(
              "One curve each",
              groupings.map((of, index) => [String(index), of.name] as const),
              String(state.grouping),
              (index) => this.set({ grouping: Number(index), range: null, hidden: new Set() }),
            ),
          ]
        : []),
    );
  }

  private curvesOf(name: string): Curve[] {
    return this.grouping().facets.find((facet: Facet) => facet.name === name)?.curves ?? [];
  }

  /** The data of a curve: the samples of all its CPUs. */
  private distribution(of: Curve): Distribution {
    const known =
      this.merged.get(of) ?? merge(of.parts.flatMap((part) => this.chart.distributions[part] ?? []));
    this.merged.set(of, known);
    return known;
  }

  private drawCharts(): void {
    const { state } = this;
    const facets = state.facet === ALL ? this.facetNames() : [state.facet];
    const small = facets.length > 1;
    this.charts.classList.toggle("small", small);
    while (this.drawn.length > facets.length) this.drawn.pop();
    // All charts of one view share their axes, so that they can be compared by eye.
    const range = state.range ?? (small ? this.commonRange(facets) : null);
    const figures = facets.map((facet, index) => {
      const settings = {
        curves: this.curvesOf(facet).map((curve) => ({ ...curve, distribution: this.distribution(curve) })),
        hidden: state.hidden,
        view: state.view,
        kind: state.kind,
        unit: state.unit,
        deadline: state.of.deadline ?? null,
        deadlineLabel: state.of.deadline_label,
        range,
        height: small ? 230 : 380,
        quantity: state.of.series,
        label: `${state.view === "histogram" ? "Histogram" : "Share of samples later than a time"}, ${facet}`,
        onZoom: (to: Range | null) => this.set({ range: to }),
      };
      const existing = this.drawn[index];
      const chart = existing ?? new Chart(settings);
      this.drawn[index] = chart;
      return { chart, settings, facet };
    });
    const focused = document.activeElement;
    const titled = figures.map(({ chart, facet }) =>
      element("figure", {}, small && element("figcaption", {}, facet), chart.element),
    );
    this.charts.replaceChildren(...titled);
    for (const { chart, settings } of figures) chart.update(settings);
    if (focused instanceof HTMLElement && this.charts.contains(focused))
      focused.focus({ preventScroll: true });
  }

  private commonRange(facets: readonly string[]): Range | null {
    const all = facets.flatMap((facet) => this.curvesOf(facet).map((curve) => this.distribution(curve)));
    return wholeRange(this.state.kind, all, this.state.of.deadline ?? null);
  }

  private renderLegend(): void {
    const { state } = this;
    const facet = state.facet === ALL ? this.widestFacet() : state.facet;
    const shown = this.curvesOf(facet);
    this.legend.replaceChildren(
      legend(shown, state.hidden, (key) => {
        const hidden = new Set(state.hidden);
        if (!hidden.delete(key)) hidden.add(key);
        this.set({ hidden });
        for (const button of this.legend.querySelectorAll<HTMLElement>("button")) {
          if (button.dataset["key"] === key) button.focus({ preventScroll: true });
        }
      }),
    );
    this.note.replaceChildren(
      state.facet === ALL ? `Maxima of the legend: ${facet}. ` : "",
      "Drag to zoom, double-click to see all. ",
      state.view === "histogram"
        ? "Counts are on a logarithmic axis; ▼ marks the latest sample of a curve. "
        : "Height: the share of samples that came later than the time below it. ",
      state.of.note,
    );
  }

  /** With all side by side the legend needs every curve. */
  private widestFacet(): string {
    const names = this.facetNames();
    const lengths = names.map((name) => this.curvesOf(name).length);
    return names[lengths.indexOf(Math.max(...lengths))] ?? "";
  }
}
