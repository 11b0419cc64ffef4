// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a cell of the matrix says.
import { GLYPHS } from "./dom";
import type { Disturbance, Verdict } from "./evaluation";
import { ratio } from "./figures";
import { isFelt, isOwn, leading } from "./walls";

/** A transfer with its sign, a factor with its cross. */
export function disturbanceFigure(verdict: Verdict): string | null {
  const interval = leading(verdict);
  if (interval === null) return null;
  return verdict.question === "transfer" ? fraction(interval.estimate) : `×${ratio(interval.estimate)}`;
}

/** A part of a block; one that rounds to nothing has no sign. */
export function fraction(value: number, decimals = 2): string {
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) > 0 ? `−${text}` : text;
}

/** What a cell says of its wall: sign, word, and the class that colours it. */
export function disturbanceWord(
  of: Disturbance,
  verdict: Verdict,
): { sign: string; word: string; name: string } {
  if (isOwn(of, verdict.domain)) {
    if (verdict.question !== "transfer") return { sign: "○", word: "own load", name: "own" };
    return isFelt(verdict)
      ? { sign: "●", word: "control: felt", name: "own" }
      : { sign: "✗", word: "control: not felt", name: "fails" };
  }
  const { outcome } = verdict;
  return { sign: GLYPHS[outcome], word: outcome, name: outcome };
}
