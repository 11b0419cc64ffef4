// SPDX-License-Identifier: Apache-2.0 OR MIT
// HTML and SVG elements. Texts of the document become text nodes and attributes, never markup.
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

/** Appends texts and nodes; skips absent ones. */
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

/** A switch of a few choices: radio buttons, so that the keyboard works as everywhere. */
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
