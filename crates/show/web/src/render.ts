// SPDX-License-Identifier: Apache-2.0 OR MIT
// Elements as nodes. All words and figures are those of the elements.
import { type Child, element } from "./dom";
import { smallDrawing } from "./drawings";
import type { Axis, Badge, Column, Element, Entry, FindingItem, Row, Table, Text } from "./elements";
import { LatencySection } from "./latency";
import { TransferMatrix } from "./matrix";
import { isChosen, onChoice } from "./state";

export function text(of: Text): Child[] {
  return of.map(({ text, style }) => {
    switch (style) {
      case "strong":
        return element("b", {}, text);
      case "code":
        return element("code", {}, text);
      case "faint":
        return element("small", { class: "faint" }, text);
      case "wrong":
        return element("b", { class: "bad" }, text);
      default:
        return text;
    }
  });
}

/** Elements one after the other. */
export function all(elements: readonly Element[]): HTMLElement[] {
  return elements.flatMap((one) => nodes(one));
}

function nodes(of: Element): HTMLElement[] {
  switch (of.kind) {
    case "heading":
      return [element(of.level <= 3 ? "h3" : "h4", {}, text(of.text))];
    case "paragraph":
      return [element("p", { class: of.remark ? "remark" : null }, text(of.text))];
    case "alarm":
      return [
        element(
          "div",
          { class: `alert ${of.severity}`, role: "note" },
          element("strong", {}, of.title),
          " ",
          text(of.text),
        ),
      ];
    case "first-answer":
      return [
        element(
          "div",
          { class: "first-answer" },
          element("p", { class: "best" }, text(of.answer)),
          element(
            "dl",
            {},
            ...of.parts.flatMap(({ label, text: words, command }) => [
              element("dt", {}, label),
              element("dd", {}, text(words), command !== "" && commandLine(command)),
            ]),
          ),
        ),
      ];
    case "answers":
      return [
        element(
          "div",
          { class: "sentences" },
          ...of.answers.map((one) =>
            element(
              "article",
              { class: "answer" },
              element("h3", {}, one.name, element("small", {}, ` ${one.place}`)),
              element("p", {}, text(one.sentence)),
              element("p", { class: "badges" }, ...one.badges.map(badge)),
              element("p", { class: "what" }, one.description),
            ),
          ),
        ),
      ];
    case "pairs":
      return [
        element(
          "dl",
          { class: "pairs" },
          ...of.pairs.map(({ name, value, more }) => {
            const lines = value.map((line) => text(line));
            const shown = lines.length === 1 ? lines : lines.map((line) => element("div", {}, line));
            const folded =
              more &&
              element(
                "details",
                { class: "inline" },
                element("summary", {}, shown),
                element("span", {}, more),
              );
            return element("div", {}, element("dt", {}, name), element("dd", {}, folded || shown));
          }),
        ),
      ];
    case "list":
      return [
        element(
          "ul",
          { class: "plain" },
          ...of.items.map((item) => element("li", {}, item.label && `${item.label}: `, text(item.text))),
        ),
      ];
    case "table":
      return [table(of)];
    case "findings":
      return [element("ul", { class: "findings" }, ...of.findings.map(finding))];
    case "badges":
      return [
        element(
          "div",
          { class: "evidence" },
          ...of.badges.flatMap((one) => [badge(one), " "]),
          of.folded.length > 0 &&
            element(
              "details",
              { class: "inline" },
              element("summary", {}, of.summary),
              element("span", { class: "evidence" }, ...of.folded.flatMap((one) => [badge(one), " "])),
            ),
        ),
      ];
    case "matrix":
      return new TransferMatrix(of).elements;
    case "latency":
      return new LatencySection(of).elements;
    case "detail":
      if (of.summary == null) return all(of.elements);
      return [element("details", {}, element("summary", {}, of.summary), ...all(of.elements))];
    case "columns":
      return [
        element(
          "div",
          { class: of.framed ? "cards" : "two-columns" },
          ...of.columns.map((column) => element(of.framed ? "article" : "div", {}, ...all(column))),
        ),
      ];
    case "switched":
      return [switched(of)];
  }
}

/** A command, with a button that copies it where the browser allows that. */
function commandLine(command: string): HTMLElement {
  const copy = element("button", { type: "button", class: "copy screen", onclick: () => void put() }, "Copy");
  const put = async () => {
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select and copy";
    }
  };
  return element("div", { class: "command" }, element("code", {}, command), copy);
}

/** Elements that are seen while the switches of the chart are so. */
function switched({ views, condition, elements }: Extract<Element, { kind: "switched" }>): HTMLElement {
  const made = element("div", { class: "switched" });
  onChoice(() => {
    const chosen = isChosen(views, condition ?? null);
    made.hidden = !chosen;
    // Only now: most are never looked at.
    if (chosen && made.childElementCount === 0) made.append(...all(elements));
  });
  return made;
}

/** An outcome as a sign, words and a colour. The colour adds nothing to the words. */
export function badge(of: Badge): HTMLElement {
  const word = of.word_seen
    ? [of.about && element("span", { class: "about" }, `${of.about} `), of.word]
    : [of.about, of.word && element("span", { class: "unseen" }, ` ${of.word}`)];
  return element(
    of.link == null ? "span" : "a",
    { class: `badge ${of.outcome}`, href: of.link == null ? null : `#${of.link}`, title: of.hint || null },
    element("span", { "aria-hidden": true }, `${of.sign} `),
    word,
  );
}

function finding(of: FindingItem): HTMLElement {
  return element(
    "li",
    { class: `finding ${of.severity}` },
    element("span", { class: "severity" }, of.word),
    element(
      "div",
      {},
      of.location && [element("b", {}, of.location), ": "],
      text(of.what),
      of.values && ` (${of.values})`,
      of.fixes.map((fix) => element("div", { class: "fix" }, "Fix: ", text(fix))),
    ),
  );
}

/** Names along an axis. */
export function axis(of: Axis): HTMLElement {
  return element(
    "span",
    { class: "ratio-axis", "aria-hidden": true },
    ...of.map(([at, name]) => element("i", { style: `left: ${at}%` }, name)),
  );
}

/** A table that scrolls by itself where it is wider than the page. */
export function scrolling(label: string, child: HTMLElement): HTMLElement {
  return element("div", { class: "scrolling", role: "region", "aria-label": label, tabindex: 0 }, child);
}

function table(of: Table): HTMLElement {
  const drawn = of.columns.map((_, at) =>
    of.groups.some((group) => group.rows.some((row) => row.entries[at]?.drawing)),
  );
  const classes = of.columns.map((column, at) => (drawn[at] ? "drawing" : column.kind));
  const made = element(
    "table",
    { class: `style-${of.style} ${of.class}`.trim() },
    element("caption", { class: "unseen" }, of.caption),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ...of.columns.map((column, at) =>
          element(
            "th",
            { scope: "col", class: classes[at] },
            text(column.name),
            column.axis && axis(column.axis),
          ),
        ),
      ),
    ),
    ...of.groups.map((group) => {
      const body = element(
        "tbody",
        {},
        group.name !== "" &&
          element(
            "tr",
            { class: "group" },
            element(
              "th",
              { colspan: of.columns.length, scope: "rowgroup" },
              group.name,
              element("span", { class: "load" }, text(group.about)),
            ),
          ),
        ...group.rows.flatMap((row) => rows(row, of.columns, classes)),
      );
      const { condition } = group;
      if (condition != null)
        onChoice(() => body.classList.toggle("unchosen", !isChosen(null, condition, true)));
      return body;
    }),
  );
  return scrolling(of.caption, made);
}

/** A row with its data, which can be opened. */
function rows(row: Row, columns: readonly Column[], classes: readonly string[]): HTMLElement[] {
  const opens = row.detail.length > 0;
  const details = element(
    "tr",
    { class: "details", hidden: true },
    element("td", { colspan: columns.length }),
  );
  const toggle = (event: Event) => {
    details.hidden = !details.hidden;
    (event.currentTarget as Element_).setAttribute("aria-expanded", String(!details.hidden));
    const target = details.firstElementChild;
    if (!details.hidden && target?.childElementCount === 0) target.append(...all(row.detail));
  };
  const made = element(
    "tr",
    { id: row.id, title: row.hint || null, class: row.invalid ? "invalid" : null },
    ...row.entries.map((entry, at) => {
      const column = columns[at];
      const child = opens && at === 0 ? opener(entry, toggle) : content(entry, column);
      const attributes = {
        class: classes[at],
        "data-column": column?.name.map((span) => span.text).join(""),
      };
      return at === 0
        ? element("th", { scope: "row", ...attributes }, child)
        : element("td", attributes, child);
    }),
  );
  return opens ? [made, details] : [made];
}

type Element_ = globalThis.Element;

function opener(entry: Entry, toggle: (event: Event) => void): HTMLElement {
  return element(
    "button",
    { type: "button", class: "opener", "aria-expanded": "false", onclick: toggle },
    text(entry.text),
  );
}

function content(entry: Entry, column: Column | undefined): Child[] {
  const { drawing } = entry;
  // Shares are named beside the drawing.
  const words = drawing?.kind === "shares" ? [] : text(entry.text);
  const { outcome } = entry;
  const shown: Child =
    outcome == null
      ? words
      : column?.kind === "outcome"
        ? element(
            "span",
            { class: `badge ${outcome}` },
            element("span", { "aria-hidden": true }, `${entry.sign} `),
            words,
          )
        : element("strong", { class: `answer-word ${outcome}` }, words);
  return [shown, drawing && smallDrawing(drawing), ...all(entry.detail)];
}
