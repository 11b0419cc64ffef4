// SPDX-License-Identifier: Apache-2.0 OR MIT
// Elements made by hand. What comes from the document becomes text nodes and attributes, never markup.
import type { Finding, VerdictOutcome } from "./evaluation";

export type Child = Node | string | number | null | undefined | false | readonly Child[];
type Value = string | number | boolean | null | undefined | ((event: Event) => void);
export type Attributes = { readonly [name: string]: Value };

function fill(node: Element, attributes: Attributes, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
}

/** Appends texts and nodes; nothing for what is absent. */
export function append(node: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) node.append(child);
    else if (typeof child === "object") append(node, child);
    else node.append(String(child));
  }
}

/** An HTML element. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const node = document.createElement(name);
  fill(node, attributes, children);
  return node;
}

/** An SVG element. */
export function drawing(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(node, attributes, children);
  return node;
}

/** A part of the page with a heading that can be linked to. */
export function section(id: string, title: string, ...children: Child[]): HTMLElement {
  return element(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title),
    ...children,
  );
}

/** A sign for each outcome, so that colour is not needed. */
export const GLYPHS: { [outcome in VerdictOutcome]: string } = {
  holds: "✓",
  leaks: "≈",
  fails: "✗",
  inconclusive: "?",
};

/** An outcome as a sign, a word and a colour; without the colour it says the same. */
export function badge(outcome: VerdictOutcome, before = "", attributes: Attributes = {}): HTMLElement {
  return element(
    "href" in attributes ? "a" : "span",
    { ...attributes, class: `badge ${outcome}` },
    element("span", { "aria-hidden": true }, `${GLYPHS[outcome]} `),
    before && element("span", { class: "about" }, `${before} `),
    outcome,
  );
}

/** A word that amounts to this outcome, coloured so; plain where it amounts to none. */
export function wordBadge(outcome: VerdictOutcome | null, word: string): HTMLElement {
  if (outcome === null) return element("span", {}, word);
  return element(
    "span",
    { class: `badge ${outcome}` },
    element("span", { "aria-hidden": true }, `${GLYPHS[outcome]} `),
    word,
  );
}

/** A badge whose sign stands for the outcome; the word is there for those who do not see it. */
export function shortBadge(outcome: VerdictOutcome, about: string, attributes: Attributes): HTMLElement {
  return element(
    "a",
    { ...attributes, class: `badge ${outcome}` },
    element("span", { "aria-hidden": true }, `${GLYPHS[outcome]} `),
    about,
    element("span", { class: "unseen" }, ` ${outcome}`),
  );
}

/** A table that scrolls by itself where it is wider than the page. */
export function scrolling(label: string, table: HTMLElement): HTMLElement {
  return element("div", { class: "scrolling", role: "region", "aria-label": label, tabindex: 0 }, table);
}

export type Cell = Child | { readonly cell: Child; readonly attributes: Attributes };

function tableCell(of: Cell, index: number, header: boolean, classes: readonly string[]): HTMLElement {
  const special = typeof of === "object" && of !== null && "cell" in of;
  const attributes = special ? of.attributes : {};
  const name = header || index === 0 ? "th" : "td";
  const scope = header ? "col" : index === 0 ? "row" : null;
  const child: Child = special ? of.cell : (of as Child);
  return element(name, { scope, class: classes[index] || null, ...attributes }, child);
}

/** A row; its first cell is its heading. */
export function row(
  cells: readonly Cell[],
  classes: readonly string[] = [],
  attributes: Attributes = {},
): HTMLElement {
  return element("tr", attributes, ...cells.map((cell, index) => tableCell(cell, index, false, classes)));
}

/** A table; `classes` are those of the columns, `figure` for numbers. */
export function table(
  caption: string,
  header: readonly Cell[],
  classes: readonly string[],
  bodies: readonly (readonly HTMLElement[])[],
  attributes: Attributes = {},
): HTMLTableElement {
  return element(
    "table",
    attributes,
    element("caption", { class: "unseen" }, caption),
    element(
      "thead",
      {},
      element("tr", {}, ...header.map((cell, index) => tableCell(cell, index, true, classes))),
    ),
    ...bodies.map((rows) => element("tbody", {}, ...rows)),
  );
}

/** Names and values, one pair a line. */
export function pairs(...all: readonly (readonly [string, Child] | null)[]): HTMLElement {
  const absent = (of: Child) =>
    of === null || of === undefined || of === "" || of === false || (Array.isArray(of) && of.length === 0);
  const present = all.filter((pair) => pair !== null && !absent(pair[1]));
  return element(
    "dl",
    { class: "pairs" },
    ...present.map((pair) => element("div", {}, element("dt", {}, pair?.[0]), element("dd", {}, pair?.[1]))),
  );
}

/** Text in which what stands in backticks is code. */
export function withCode(text: string): Child[] {
  const parts = text.split("`");
  // An odd number of backticks opens something that never ends: plain text then.
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, index) => (index % 2 === 1 ? element("code", {}, part) : part));
}

const SEVERITY_WORDS = { note: "note", warning: "warning", error: "error" } as const;

/** One finding with its values and its fix; `others` are values of findings that are the same else. */
export function findingItem(of: Finding, others: readonly string[] = []): HTMLElement {
  const values = [
    of.expected != null && ["expected ", element("b", {}, of.expected)],
    of.found != null && [
      "found ",
      element("b", {}, of.found),
      others.length > 0 &&
        element(
          "span",
          { title: others.join("; ") },
          ` and ${others.length} other ${others.length > 1 ? "values" : "value"}`,
        ),
    ],
  ].filter((value) => value !== false);
  return element(
    "li",
    { class: `finding ${of.severity}` },
    element("span", { class: "severity" }, SEVERITY_WORDS[of.severity]),
    element(
      "div",
      {},
      element("b", { class: "place" }, of.location),
      of.location === "" ? "" : ": ",
      ...withCode(of.what),
      values.length > 0 && [
        " (",
        ...values.flatMap((value, index) => (index > 0 ? [", ", value] : [value])),
        ")",
      ],
      of.fix != null && element("div", { class: "fix" }, "Fix: ", ...withCode(of.fix)),
    ),
  );
}

/** Findings, the gravest first, each once; those that differ in the present value alone are one. */
export function findingList(all: readonly Finding[]): HTMLElement {
  const rank = { error: 0, warning: 1, note: 2 };
  const once = new Map<string, { finding: Finding; values: Set<string> }>();
  for (const finding of all) {
    const key = JSON.stringify({ ...finding, found: null });
    const found = once.get(key) ?? { finding, values: new Set<string>() };
    if (finding.found != null) found.values.add(finding.found);
    once.set(key, found);
  }
  const sorted = [...once.values()].sort((a, b) => rank[a.finding.severity] - rank[b.finding.severity]);
  return element(
    "ul",
    { class: "findings" },
    ...sorted.map(({ finding, values }) =>
      findingItem(
        finding,
        [...values].filter((value) => value !== finding.found),
      ),
    ),
  );
}

/** A switch of a few choices, of which one holds: radio buttons, so that the keyboard works as everywhere. */
export function choice<Key extends string>(
  label: string,
  options: readonly (readonly [Key, string])[],
  chosen: Key,
  onChoose: (key: Key) => void,
): HTMLElement {
  const name = `choice-${label.replace(/\W+/g, "-").toLowerCase()}`;
  return element(
    "fieldset",
    { class: "choice" },
    element("legend", {}, label),
    element(
      "div",
      { class: "options" },
      ...options.map(([key, text]) =>
        element(
          "label",
          {},
          element("input", {
            type: "radio",
            name,
            value: key,
            checked: key === chosen,
            onchange: () => onChoose(key),
          }),
          element("span", {}, text),
        ),
      ),
    ),
  );
}
