// SPDX-License-Identifier: Apache-2.0 OR MIT
// State of the switches of the chart, and its listeners.

/** The key of a view, and a condition; empty for all conditions. */
let chosen = { view: "", condition: "" };
const listeners: (() => void)[] = [];

/** Calls `listener` now and whenever the choice changes. */
export function onChoice(listener: () => void): void {
  listeners.push(listener);
  listener();
}

export function choose(view: string, condition: string): void {
  chosen = { view, condition };
  for (const listener of listeners) listener();
}

/** Whether these are chosen; null is any. A part of all conditions is chosen with all of them. */
export function isChosen(views: readonly string[] | null, condition: string | null, part = false): boolean {
  if (views !== null && !views.includes(chosen.view)) return false;
  return condition === null || condition === chosen.condition || (part && chosen.condition === "");
}
