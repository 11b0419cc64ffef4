// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page: draws the elements that are in it.
import { element } from "./dom";
import type { Element, PageData } from "./elements";
import { all, text } from "./render";
import { isDark, onThemeChange, setTheme } from "./theme";

/** The version of the elements that this page draws. */
const VERSION = 1;

function themeButton(): HTMLElement {
  const button = element("button", {
    type: "button",
    class: "theme",
    onclick: () => setTheme(isDark() ? "light" : "dark"),
  });
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  name();
  onThemeChange(name);
  return button;
}

function navigation(links: readonly (readonly [string, string])[]): HTMLElement {
  return element(
    "nav",
    { "aria-label": "Parts of the page" },
    element("a", { href: "#top", class: "mark" }, "Rampart"),
    element("div", { class: "links" }, ...links.map(([id, name]) => element("a", { href: `#${id}` }, name))),
    themeButton(),
  );
}

/** Details that are always open are part of the page like all else. */
function flat(elements: readonly Element[]): Element[] {
  return elements.flatMap((of) => (of.kind === "detail" && of.summary == null ? flat(of.elements) : [of]));
}

/** The header, a section for each heading of level 2, and their links. */
function sections(elements: readonly Element[]): HTMLElement[] {
  const links: [string, string][] = [];
  const header = element("header", { id: "top" });
  const made: HTMLElement[] = [header];
  let part = header;
  for (const of of elements) {
    if (of.kind === "heading" && of.level === 1) {
      part.append(element("h1", {}, text(of.text)));
    } else if (of.kind === "heading" && of.level === 2) {
      const title = `${of.id}-title`;
      part = element(
        "section",
        { id: of.id, "aria-labelledby": title },
        element("h2", { id: title }, text(of.text)),
      );
      links.push([of.id, of.name]);
      made.push(part);
    } else {
      part.append(...all([of]));
    }
  }
  return [navigation(links), element("main", {}, ...made)];
}

function save(evaluation: string): HTMLElement {
  return element(
    "button",
    {
      type: "button",
      class: "screen",
      onclick: () => {
        const url = URL.createObjectURL(new Blob([evaluation], { type: "application/json" }));
        element("a", { href: url, download: "evaluation.json" }).click();
        URL.revokeObjectURL(url);
      },
    },
    "Save evaluation.json",
  );
}

function render(data: PageData, evaluation: string): HTMLElement[] {
  if (data.version !== VERSION) {
    throw new Error(`elements of version ${data.version}, expected ${VERSION}: render the document again`);
  }
  document.title = data.title;
  const made = sections(flat(data.elements));
  made[1]?.append(
    element("p", { class: "screen" }, "The whole document is in this page: ", save(evaluation)),
    element("footer", {}, "Created by Rampart. Charts by uPlot (MIT licence, Leon Sorokin)."),
  );
  return made;
}

const page = document.getElementById("page");
const embedded = (id: string) => document.getElementById(id)?.textContent ?? "";
try {
  if (embedded("elements") === "") throw new Error("there is no report in this page");
  page?.replaceChildren(...render(JSON.parse(embedded("elements")) as PageData, embedded("evaluation")));
} catch (error) {
  const reason = error instanceof Error ? error.message : String(error);
  page?.replaceChildren(
    element("main", {}, element("h1", {}, "This report cannot be shown"), element("p", {}, reason)),
  );
  console.error(error);
}
