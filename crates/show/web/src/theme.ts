// SPDX-License-Identifier: Apache-2.0 OR MIT
// Light and dark: the system's choice until the reader makes another.

/** Curves have this many colours; later ones repeat them in dashes. */
export const COLOURS = 8;

const listeners = new Set<() => void>();

/** Calls `listener` whenever colours change. */
export function onThemeChange(listener: () => void): void {
  listeners.add(listener);
}

function notify(): void {
  for (const listener of listeners) listener();
}

const system = window.matchMedia("(prefers-color-scheme: dark)");
system.addEventListener("change", notify);

/** Whether the page is dark now. */
export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === undefined ? system.matches : chosen === "dark";
}

/** Chooses, or with null leaves it to the system. */
export function setTheme(theme: "light" | "dark" | null): void {
  if (theme === null) delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  notify();
}

/** A colour of the style sheet as it is now, for canvases. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colour of the curve with this number. */
export function curveColour(index: number): string {
  return colour(`curve-${index % COLOURS}`);
}

/** The dashes of the curve with this number, in px. */
export function curveDash(index: number): number[] {
  return [[], [7, 3], [2, 2], [8, 3, 2, 3]][Math.floor(index / COLOURS) % 4] ?? [];
}

/** Paper is white: while printing the page is light. */
export function lightWhilePrinting(before: () => void, after: () => void): void {
  let chosen: string | undefined;
  window.addEventListener("beforeprint", () => {
    chosen = document.documentElement.dataset["theme"];
    setTheme("light");
    before();
  });
  window.addEventListener("afterprint", () => {
    setTheme(chosen === "dark" || chosen === "light" ? chosen : null);
    after();
  });
}
