// SPDX-License-Identifier: Apache-2.0 OR MIT
// Who disturbs whom: the matrix of walls. A cell chooses the pair that is shown under it.
import { type Child, element, scrolling, section, table } from "../dom";
import type { Disturbance, Evaluation, Interval } from "../evaluation";
import { exposure, plural, ratio, time } from "../figures";
import { intervalDrawing, ratioAxis, ratioLocation, ratioMarks, transferLocation } from "../interval";
import { domainName } from "../select";
import { disturbanceFigure, disturbanceWord, fraction } from "../wall-words";
import {
  blockCount,
  disturbanceName,
  disturbances,
  disturbanceVerdict,
  isOwn,
  leading,
  roundsOf,
  watchedDomains,
} from "../walls";
import type { VerdictLocations } from "./answer";
import { Pair } from "./pair";

/** The section; null where nothing was disturbed. */
export function walls(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  const rows = disturbances(evaluation);
  const columns = watchedDomains(evaluation);
  if (rows.length === 0 || columns.length === 0) return null;
  return new Walls(evaluation, locations, rows, columns).element;
}

class Walls {
  readonly element: HTMLElement;
  private readonly pair: Pair;
  /** The grid of buttons, for the arrow keys; null where a cell has nothing to show. */
  private readonly grid: (HTMLButtonElement | null)[][] = [];

  constructor(
    private readonly evaluation: Evaluation,
    private readonly locations: VerdictLocations,
    rows: readonly Disturbance[],
    private readonly columns: readonly string[],
  ) {
    this.pair = new Pair(evaluation);
    const blocks = rows.filter((of) => of.kind === "block");
    const loads = rows.filter((of) => of.kind !== "block");
    const factors = loads.flatMap((of) =>
      columns.flatMap((domain) => {
        const verdict = disturbanceVerdict(evaluation, of, domain);
        return (verdict && leading(verdict)) ?? [];
      }),
    );
    const tolerance = this.tolerance("interference") ?? 1.5;
    const axis = ratioAxis(factors, tolerance);
    const location = (value: number) => ratioLocation(value, axis);
    const bodies = [
      this.body("Blocks", "part that reaches the watched domain: 0 none of it, 1 all", blocks, (one, name) =>
        intervalDrawing(one, transferLocation, [-0.15, this.tolerance("transfer") ?? 0.1], 0, name),
      ),
      this.body("Loads", "factor on the largest of the compared quantiles: 1 no effect", loads, (one, name) =>
        intervalDrawing(one, location, [1 / tolerance, tolerance], 1, name),
      ),
    ].filter((body) => body.length > 0);
    const header: Child[] = [
      element("span", {}, "disturbed ↓  watched →"),
      ...columns.map((domain) => domainName(evaluation, domain)),
    ];
    const made = table("Who disturbs whom", header, [], bodies, {
      class: "walls",
      style: `min-width: ${176 + columns.length * 140}px`,
    });
    made.addEventListener("keydown", (event) => this.onKey(event));
    this.element = section(
      "walls",
      "Who disturbs whom",
      element("p", { class: "remark" }, ...this.remark(loads.length > 0)),
      scrolling("Matrix of walls", made),
      loads.length > 0 &&
        element(
          "p",
          { class: "remark axis-of-loads", "aria-hidden": true },
          "factors of loads: ",
          ratioMarks(axis),
        ),
      this.pair.element,
    );
    this.chooseFirst();
    window.addEventListener("hashchange", () => this.chooseByAddress());
    // Only once the page stands can an address in it be gone to.
    requestAnimationFrame(() => this.chooseByAddress());
  }

  private tolerance(question: "transfer" | "interference"): number | null {
    for (const { disturbance, figures } of this.evaluation.verdicts) {
      if (!disturbance || !figures) continue;
      if (question === "transfer" && "transfer" in figures) return figures.transfer.tolerance;
      if (question === "interference" && "interference" in figures) return figures.interference.tolerance;
    }
    return null;
  }

  private remark(loads: boolean): Child[] {
    const transfer = this.tolerance("transfer");
    const factor = this.tolerance("interference");
    return [
      "A row is what was done to one domain, a column who was watched meanwhile. ",
      transfer !== null &&
        `The wall holds if at most ${ratio(transfer)} of a block gets across, at the unfavourable end of the interval. `,
      loads && factor !== null && `Under a load it holds up to a factor of ${ratio(factor)}. `,
      "A domain’s own block (●) is the positive control: it must be felt there, or its row proves nothing. Choose a cell to see its latencies in time.",
    ];
  }

  private body(
    title: string,
    about: string,
    rows: readonly Disturbance[],
    draw: (interval: Interval, name: string) => SVGElement,
  ): HTMLElement[] {
    if (rows.length === 0) return [];
    return [
      element(
        "tr",
        { class: "group" },
        element(
          "th",
          { colspan: this.columns.length + 1, scope: "rowgroup" },
          title,
          element("span", { class: "load" }, about),
        ),
      ),
      ...rows.map((of) => {
        const cells = this.columns.map((domain) => this.cell(of, domain, draw));
        this.grid.push(cells.map((cell) => cell.querySelector("button")));
        return element("tr", {}, this.rowHead(of), ...cells);
      }),
    ];
  }

  private rowHead(of: Disturbance): HTMLElement {
    const rounds = (this.evaluation.transfers ?? []).filter(
      (round) => round.disturbance && disturbanceName(round.disturbance) === disturbanceName(of),
    );
    const [first] = rounds;
    const made = first?.blocks;
    const cpus = [...new Set(made?.spans.map((span) => span.cpu))].join(",");
    const where =
      of.side === "under"
        ? `by the host, CPU ${cpus} under the guest`
        : made?.clock?.length
          ? `CPU ${cpus} of ${of.domain}`
          : `CPU ${cpus}`;
    const words = made
      ? `${plural(blockCount(first), "block")} of ${time(made.length)}, ${where}`
      : (first?.load?.version ?? "not made");
    return element(
      "th",
      { scope: "row" },
      element("code", {}, disturbanceName(of)),
      element("small", {}, words),
      made?.kind === "spin" &&
        element("small", { class: "bad" }, "by a spinning thread: interrupts still get past"),
    );
  }

  private cell(
    of: Disturbance,
    domain: string,
    draw: (interval: Interval, name: string) => SVGElement,
  ): HTMLElement {
    const verdict = disturbanceVerdict(this.evaluation, of, domain);
    if (verdict === null && roundsOf(this.evaluation, of, domain).length === 0) {
      return element("td", { class: "empty", "data-domain": domain }, "not measured");
    }
    const { sign, word, name } = verdict
      ? disturbanceWord(of, verdict)
      : { sign: "–", word: "not judged", name: "inconclusive" };
    const interval = verdict && leading(verdict);
    const ends = interval && verdict.question === "transfer" ? fraction : ratio;
    const button = element(
      "button",
      {
        type: "button",
        tabindex: -1,
        "aria-pressed": "false",
        "aria-controls": "pair",
        title: verdict ? `${verdict.statement} — ${exposure(verdict.exposure)}` : null,
        onclick: () => this.choose(of, domain),
      },
      element(
        "span",
        { class: "word" },
        element("span", { "aria-hidden": true }, `${sign} `),
        element("span", {}, word),
      ),
      interval && element("b", {}, verdict && disturbanceFigure(verdict)),
      interval && element("span", { class: "ends" }, `${ends(interval.low)} to ${ends(interval.high)}`),
      interval && draw(interval, name),
    );
    return element(
      "td",
      {
        id: verdict && this.locations.get(verdict.id),
        class: `wall ${name}`,
        "data-disturbance": disturbanceName(of),
        "data-domain": domain,
      },
      button,
    );
  }

  private buttons(): HTMLButtonElement[] {
    return this.grid.flat().filter((button) => button !== null);
  }

  /** The gravest wall first: a leak between two domains is what one came to see. */
  private chooseFirst(): void {
    const rows = disturbances(this.evaluation);
    let best: { of: Disturbance; domain: string; rank: number } | null = null;
    for (const of of rows) {
      for (const domain of this.columns) {
        if (roundsOf(this.evaluation, of, domain).length === 0) continue;
        const verdict = disturbanceVerdict(this.evaluation, of, domain);
        const leaks = verdict?.outcome === "leaks" && !isOwn(of, domain);
        const rank = (leaks ? 4 : 0) + (of.domain !== domain ? 2 : 0) + (of.kind === "block" ? 1 : 0);
        if (best === null || rank > best.rank) best = { of, domain, rank };
      }
    }
    if (best !== null) this.choose(best.of, best.domain);
  }

  /** A link to a verdict of the matrix chooses its pair. */
  private chooseByAddress(): void {
    const id = decodeURIComponent(location.hash.slice(1));
    const verdict = this.evaluation.verdicts.find(
      (one) => one.disturbance && this.locations.get(one.id) === id,
    );
    if (verdict?.disturbance) this.choose(verdict.disturbance, verdict.domain);
  }

  private choose(of: Disturbance, domain: string): void {
    for (const button of this.buttons()) {
      const cell = button.parentElement;
      const chosen =
        cell?.dataset["disturbance"] === disturbanceName(of) && cell.dataset["domain"] === domain;
      button.setAttribute("aria-pressed", String(chosen));
      // One stop for the keyboard; the arrows reach the others.
      button.tabIndex = chosen ? 0 : -1;
    }
    this.pair.show(of, domain);
  }

  private onKey(event: KeyboardEvent): void {
    const steps: { [key: string]: readonly [number, number] } = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
    };
    const step = steps[event.key];
    if (step === undefined || !(event.target instanceof HTMLButtonElement)) return;
    let row = this.grid.findIndex((cells) => cells.includes(event.target as HTMLButtonElement));
    let column = this.grid[row]?.indexOf(event.target) ?? -1;
    let next: HTMLButtonElement | null | undefined;
    // Over cells that nothing was measured for, as far as the matrix goes.
    do {
      row += step[0];
      column += step[1];
      next = this.grid[row]?.[column];
    } while (next === null);
    next?.focus();
    next?.click();
    event.preventDefault();
  }
}
