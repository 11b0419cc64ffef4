// SPDX-License-Identifier: Apache-2.0 OR MIT
// The plot that this field knows, its switches, and the figures of what it shows.
import { Chart, type Unit } from "../chart";
import { type AxisKind, type Range, wholeRange } from "../distribution";
import { append, choice, element, section } from "../dom";
import type { Evaluation } from "../evaluation";
import { count, time, timeOrDash } from "../figures";
import type { View } from "../plot";
import {
  type Curve,
  conditions,
  curves,
  domains,
  type Grouping,
  hasCorrected,
  isEmulated,
  type Quantity,
  quantities,
  seriesWords,
} from "../select";
import { COLOURS, curveDash, lightWhilePrinting, onThemeChange } from "../theme";
import { figures } from "./figures-table";
import { worstEvents } from "./worst";

/** The facet that stands for all of them, side by side. */
const ALL = "\u0000all";

type State = {
  quantity: Quantity;
  corrected: boolean;
  grouping: Grouping;
  /** A condition, or a domain where conditions are the curves. */
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
          "data-key": curve.key,
          "aria-pressed": String(!hidden.has(curve.key)),
          title: hidden.has(curve.key) ? "Show this curve" : "Hide this curve",
          onclick: () => toggle(curve.key),
        },
        element("i", {
          class: "swatch line",
          style: `border-top: 3px ${style} var(--curve-${index % COLOURS})`,
        }),
        element("span", { class: "name" }, curve.label),
        element("span", { class: "max" }, "max ", element("b", {}, timeOrDash(curve.distribution.max))),
        element("span", { class: "samples" }, `${count(curve.distribution.samples)} samples`),
      );
    }),
  );
}

/** The section and, because they follow its switches, the figures and the worst events. */
export function latency(evaluation: Evaluation): HTMLElement[] {
  const all = quantities(evaluation);
  const first = all[0];
  if (first === undefined) {
    return [section("latency", "Latency", element("p", {}, "Nothing was measured."))];
  }
  return new Latency(evaluation, all, first).elements;
}

class Latency {
  readonly elements: HTMLElement[];
  private readonly switches = element("div", { class: "switches" });
  private readonly charts = element("div", { class: "charts" });
  private readonly legend = element("div", {});
  private readonly note = element("p", { class: "remark" });
  private readonly figures = section("figures", "Figures");
  private readonly worst = section("worst", "Worst events");
  private drawn: Chart[] = [];
  private readonly state: State;
  private readonly evaluation: Evaluation;
  private readonly quantities: Quantity[];

  constructor(evaluation: Evaluation, all: Quantity[], first: Quantity) {
    this.evaluation = evaluation;
    this.quantities = all;
    this.state = {
      quantity: first,
      corrected: false,
      grouping: "domains",
      facet: conditions(evaluation)[0] ?? "",
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
      section(
        "latency",
        "Latency",
        this.switches,
        element("div", { class: "plot" }, zoom, this.charts),
        this.legend,
        this.note,
      ),
      this.figures,
      this.worst,
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

  private facetNames(): string[] {
    return this.state.grouping === "conditions" ? domains(this.evaluation) : conditions(this.evaluation);
  }

  private render(): void {
    const names = this.facetNames();
    if (this.state.facet !== ALL && !names.includes(this.state.facet)) this.state.facet = names[0] ?? "";
    this.renderSwitches(names);
    this.drawCharts();
    this.renderLegend();
    this.renderFigures();
  }

  private renderSwitches(names: string[]): void {
    const { state } = this;
    const byConditions = state.grouping === "conditions";
    const facets: (readonly [string, string])[] = names.map((name) => [name, name] as const);
    if (names.length > 1) facets.push([ALL, "all side by side"]);
    const facetChoice = choice(byConditions ? "Domain" : "Condition", facets, state.facet, (facet) =>
      this.set({ facet, range: null }),
    );
    const groupings: (readonly [Grouping, string])[] = [["domains", "domain"]];
    if (this.evaluation.records.some((record) => record.cpus.length > 1)) groupings.push(["cpus", "CPU"]);
    if (conditions(this.evaluation).length > 1) groupings.push(["conditions", "condition"]);
    const key = (of: Quantity) => `${of.meter}/${of.series}`;
    this.switches.replaceChildren(
      facetChoice,
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
      ...(this.quantities.length > 1
        ? [
            choice(
              "Quantity",
              this.quantities.map((of) => [key(of), `${of.meter}: ${seriesWords(of.series)}`] as const),
              key(state.quantity),
              (chosen) => {
                const quantity = this.quantities.find((of) => key(of) === chosen);
                if (quantity) this.set({ quantity, range: null, corrected: false });
              },
            ),
          ]
        : []),
      ...(hasCorrected(this.evaluation, state.quantity)
        ? [
            choice(
              "Missed periods",
              [
                ["seen", "as seen"],
                ["corrected", "corrected"],
              ] as const,
              state.corrected ? "corrected" : "seen",
              (chosen) => this.set({ corrected: chosen === "corrected" }),
            ),
          ]
        : []),
      ...(groupings.length > 1
        ? [
            choice("One curve each", groupings, state.grouping, (grouping) =>
              this.set({ grouping, range: null, hidden: new Set() }),
            ),
          ]
        : []),
    );
  }

  private curvesOf(facet: string): Curve[] {
    const { quantity, corrected, grouping } = this.state;
    return curves(this.evaluation, quantity, corrected, grouping, facet);
  }

  /** The deadline of the plan, where the series is compared with it. */
  private deadline(): number | null {
    const { meter, series } = this.state.quantity;
    const compared = series === "lateness" || series === "response";
    const record = this.evaluation.records.find((one) => one.plan.meter === meter);
    return compared ? (record?.plan.deadline ?? this.evaluation.plan.deadline) : null;
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
        curves: this.curvesOf(facet),
        hidden: state.hidden,
        view: state.view,
        kind: state.kind,
        unit: state.unit,
        deadline: this.deadline(),
        range,
        height: small ? 230 : 380,
        quantity: seriesWords(state.quantity.series),
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
    const all = facets.flatMap((facet) => this.curvesOf(facet).map((curve) => curve.distribution));
    return wholeRange(this.state.kind, all, this.deadline());
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
    const deadline = this.deadline();
    const emulated = domains(this.evaluation).filter((name) => isEmulated(this.evaluation, name));
    this.note.replaceChildren(
      state.facet === ALL ? `Maxima of the legend: ${facet}. ` : "",
      "Drag to zoom, double-click to see all. ",
      state.view === "histogram"
        ? "Counts stand on a logarithmic axis; ▼ marks the latest sample of a curve. "
        : "Height: the share of samples that came later than the time below it. ",
      deadline === null ? "This quantity has no deadline." : `Deadline ${time(deadline)}.`,
      emulated.length > 0 ? ` Emulated, so that these times mean nothing: ${emulated.join(", ")}.` : "",
    );
  }

  /** With all side by side the legend needs every curve. */
  private widestFacet(): string {
    const names = this.facetNames();
    const lengths = names.map((name) => this.curvesOf(name).length);
    return names[lengths.indexOf(Math.max(...lengths))] ?? "";
  }

  private renderFigures(): void {
    const { quantity, corrected, grouping, facet } = this.state;
    const condition = grouping === "conditions" || facet === ALL ? null : facet;
    const title = (of: HTMLElement) => of.querySelector("h2") ?? "";
    this.figures.replaceChildren(title(this.figures));
    append(this.figures, figures(this.evaluation, quantity, corrected, condition));
    this.worst.replaceChildren(title(this.worst));
    append(this.worst, worstEvents(this.evaluation, quantity, condition));
  }
}
