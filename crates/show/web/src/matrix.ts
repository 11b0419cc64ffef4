// SPDX-License-Identifier: Apache-2.0 OR MIT
// The transfer matrix. Its entries select the pair that is shown below it.
import { element } from "./dom";
import { smallDrawing } from "./drawings";
import type { Matrix, MatrixEntry, MatrixRow } from "./elements";
import { PairPanel } from "./pair";
import { scrolling, text } from "./render";

export class TransferMatrix {
  readonly elements: HTMLElement[];
  private readonly pair: PairPanel;
  private readonly entries = new Map<HTMLButtonElement, MatrixEntry>();
  /** The grid of buttons, for the arrow keys; null where an entry has nothing to show. */
  private readonly grid: (HTMLButtonElement | null)[][] = [];

  constructor(of: Matrix) {
    this.pair = new PairPanel(of.traces);
    const columns = of.columns.length;
    const made = element(
      "table",
      { class: "transfer-matrix", style: `min-width: ${176 + columns * 140}px` },
      element("caption", { class: "unseen" }, "Who disturbs whom"),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col" }, `${of.corner} ↓  watched →`),
          ...of.columns.map((column) => element("th", { scope: "col" }, text(column))),
        ),
      ),
      ...of.groups.map((group) =>
        element(
          "tbody",
          {},
          element(
            "tr",
            { class: "group" },
            element(
              "th",
              { colspan: columns + 1, scope: "rowgroup" },
              group.name,
              element("span", { class: "load" }, group.about),
            ),
          ),
          ...group.rows.map((row) => this.row(row)),
        ),
      ),
    );
    made.addEventListener("keydown", (event) => this.onKey(event));
    this.elements = [
      scrolling("Transfer matrix", made),
      ...of.groups.map((group) =>
        element("p", { class: "remark" }, element("b", {}, `${group.name}. `), text(group.remark)),
      ),
      this.pair.element,
    ];
    const first = of.selected && this.grid[of.selected[0]]?.[of.selected[1]];
    if (first) this.choose(first);
    window.addEventListener("hashchange", () => this.chooseByAddress());
    // An address can only be gone to once the page is there.
    requestAnimationFrame(() => this.chooseByAddress());
  }

  private row(of: MatrixRow): HTMLElement {
    const entries = of.entries.map((one) => this.entry(of.name, one));
    this.grid.push(entries.map((one) => one.querySelector("button")));
    return element(
      "tr",
      {},
      element(
        "th",
        { scope: "row" },
        element("code", {}, of.name),
        ...of.about.map((line) => element("small", {}, text(line))),
      ),
      ...entries,
    );
  }

  private entry(disturbance: string, of: MatrixEntry): HTMLElement {
    const position = { "data-disturbance": disturbance, "data-domain": of.domain };
    if (of.pair == null) return element("td", { class: "empty", ...position }, "not measured");
    const button = element(
      "button",
      {
        type: "button",
        tabindex: -1,
        "aria-pressed": "false",
        "aria-controls": "pair",
        title: of.hint || null,
        onclick: () => this.choose(button),
      },
      element(
        "span",
        { class: "word" },
        element("span", { "aria-hidden": true }, `${of.sign} `),
        element("span", {}, of.word),
      ),
      of.figure && element("b", {}, of.figure),
      of.ends && element("span", { class: "ends" }, of.ends),
      of.drawing && smallDrawing(of.drawing),
    );
    this.entries.set(button, of);
    return element(
      "td",
      { id: of.id, class: `transfer ${of.outcome ?? "inconclusive"}`, ...position },
      button,
    );
  }

  /** A link to a verdict of the matrix chooses its pair. */
  private chooseByAddress(): void {
    const id = decodeURIComponent(location.hash.slice(1));
    for (const [button, { id: own }] of this.entries) if (own != null && own === id) this.choose(button);
  }

  private choose(chosen: HTMLButtonElement): void {
    for (const button of this.entries.keys()) {
      button.setAttribute("aria-pressed", String(button === chosen));
      // One stop for the keyboard; the arrows reach the others.
      button.tabIndex = button === chosen ? 0 : -1;
    }
    const pair = this.entries.get(chosen)?.pair;
    if (pair) this.pair.show(pair);
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
    let row = this.grid.findIndex((entries) => entries.includes(event.target as HTMLButtonElement));
    let column = this.grid[row]?.indexOf(event.target) ?? -1;
    let next: HTMLButtonElement | null | undefined;
    // Over entries without a measurement, as far as the matrix goes.
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
