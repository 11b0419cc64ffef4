// SPDX-License-Identifier: Apache-2.0 OR MIT
// Small drawings in entries of tables. Positions are percentages of their width.
import { type Child, drawing, element } from "./dom";
import type { Drawing } from "./elements";
import { COLOURS } from "./theme";

const at = (percent: number) => `${percent}%`;

export function smallDrawing(of: Drawing): Child {
  switch (of.kind) {
    case "interval":
      return svg(
        of.label,
        `interval ${of.outcome}`,
        bar(of.tolerance, { y: 0, height: "100%", class: "tolerance" }),
        line(of.no_effect, "one"),
        drawing("line", { x1: at(of.ends[0]), x2: at(of.ends[1]), y1: "50%", y2: "50%", class: "whisker" }),
        drawing("circle", { cx: at(of.estimate), cy: "50%", r: 3.5, class: "estimate" }),
      );
    case "shares":
      return [
        svg(
          of.label,
          "cause-lane",
          bar([0, 100], { y: 0, height: "100%", class: "rail" }),
          ...of.parts.map((part) => {
            if (part.width === 0) return null;
            const made = bar([part.from, part.from + part.width], {
              y: 0,
              height: "100%",
              class: part.class,
            });
            made.append(drawing("title", {}, part.hint));
            return made;
          }),
        ),
        element(
          "ul",
          { class: "cause-list" },
          ...of.parts.map((part) =>
            element("li", {}, element("i", { class: `swatch ${part.class}` }), part.hint),
          ),
        ),
      ];
    case "life":
      return svg(
        of.label,
        "life",
        bar([0, 100], { y: 7, height: 8, class: "rail" }),
        of.until && [
          bar([0, of.until[2]], { y: 4, height: 14, class: `${of.outcome} unsure` }),
          bar([0, of.until[0]], { y: 4, height: 14, class: of.outcome }),
          line(of.until[1], "last"),
        ],
        line(of.event, "crash"),
      );
    case "dots":
      return svg(
        of.label,
        `dots ${of.shade}`,
        drawing("line", { x1: 0, x2: "100%", y1: "50%", y2: "50%", class: "rail" }),
        // A little up and down, so that equal values do not hide each other.
        ...of.values.map((value, index) =>
          drawing("circle", { cx: at(value), cy: 7 + ((index * 5) % 12), r: 3 }),
        ),
        of.median != null && line(of.median, "median"),
      );
    case "events":
      return svg(
        of.label,
        "events",
        bar([0, of.warm_up], { y: 0, height: "100%", class: "warm-up" }),
        bar([0, of.end], { y: "95%", height: 1, class: "floor" }),
        ...of.events.map(([place, height, hint]) => {
          const stem = drawing("line", {
            x1: at(place),
            x2: at(place),
            y1: "100%",
            y2: at(100 - height),
            style: `stroke: var(--curve-${of.curve % COLOURS})`,
          });
          stem.append(drawing("title", {}, hint));
          return stem;
        }),
      );
  }
}

function svg(label: string, name: string, ...children: Child[]): SVGElement {
  return drawing("svg", { class: name, role: "img", "aria-label": label }, ...children);
}

function bar(
  [from, to]: readonly [number, number],
  attributes: { readonly [name: string]: string | number },
): SVGElement {
  return drawing("rect", { x: at(from), width: at(Math.max(to - from, 0)), ...attributes });
}

function line(place: number, name: string): SVGElement {
  return drawing("line", { x1: at(place), x2: at(place), y1: 0, y2: "100%", class: name });
}
