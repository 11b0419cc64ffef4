// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page: a pure rendering of the evaluation document that stands in it.
import { append, element } from "./dom";
import type { Evaluation } from "./evaluation";
import { exactSeed } from "./figures";
import { comparison, head, sentences, verdictLocations } from "./sections/answer";
import { cells } from "./sections/cells";
import { crash } from "./sections/crash";
import { planEffects } from "./sections/effects";
import { effective_settings, machineFacts } from "./sections/facts";
import { guests } from "./sections/guests";
import { latency } from "./sections/latency";
import { findings, notMeasured, provenance, reading } from "./sections/rest";
import { deadline, interference, sameAsHost } from "./sections/verdicts";
import { walls } from "./sections/walls";
import { isDark, onThemeChange, setTheme } from "./theme";

/** The version of the document that this page was written for; within it fields are only added. */
const SCHEMA_VERSION = 1;

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

function navigation(page: HTMLElement): HTMLElement {
  const links = [...page.querySelectorAll("section[id]")].map((one) => {
    const title = one.querySelector("h2")?.textContent ?? "";
    return element("a", { href: `#${one.id}` }, NAMES[one.id] ?? title);
  });
  return element(
    "nav",
    { "aria-label": "Parts of the page" },
    element("a", { href: "#top", class: "mark" }, "Rampart"),
    element("div", { class: "links" }, ...links),
    themeButton(),
  );
}

/** Short names for the bar. */
const NAMES: { [id: string]: string } = {
  "plan-effects": "Plan",
  ablation: "Changes",
  walls: "Walls",
  crash: "Crash",
  "same-as-host": "Host",
  domains: "Granted",
  machine: "Machine",
  deadline: "Deadline",
  worst: "Worst",
  "not-measured": "Not measured",
  reading: "Reading",
  again: "Again",
};

function render(text: string): HTMLElement {
  const evaluation = JSON.parse(text) as Evaluation;
  if (evaluation.schema_version > SCHEMA_VERSION) {
    throw new Error(
      `this document is of version ${evaluation.schema_version}, and this page knows ${SCHEMA_VERSION}; render it with the rampart that wrote it`,
    );
  }
  document.title = `${evaluation.machine.host_name}: Rampart evaluation`;
  const locations = verdictLocations(evaluation);
  const main = element("main", {});
  append(main, [
    element("header", { id: "top" }, ...head(evaluation)),
    sentences(evaluation, locations),
    comparison(evaluation, locations),
    ...planEffects(evaluation),
    walls(evaluation, locations),
    crash(evaluation, locations),
    ...latency(evaluation),
    deadline(evaluation, locations),
    interference(evaluation, locations),
    sameAsHost(evaluation, locations),
    effective_settings(evaluation),
    guests(evaluation),
    cells(evaluation),
    machineFacts(evaluation),
    findings(evaluation),
    notMeasured(evaluation),
    reading(evaluation),
    provenance(evaluation, exactSeed(text), text),
    element("footer", {}, "Made by Rampart. Charts by uPlot (MIT licence, Leon Sorokin)."),
  ]);
  return element("div", {}, navigation(main), main);
}

const page = document.getElementById("page");
const text = document.getElementById("evaluation")?.textContent ?? "";
if (page !== null) {
  try {
    page.replaceChildren(...render(text).childNodes);
  } catch (error) {
    // A page that stays white would say nothing at all.
    const reason = error instanceof Error ? error.message : String(error);
    page.replaceChildren(
      element(
        "main",
        {},
        element("h1", {}, "This report cannot be shown"),
        element("p", {}, text === "" ? "There is no evaluation in this page." : reason),
      ),
    );
    console.error(error);
  }
}
