// SPDX-License-Identifier: Apache-2.0 OR MIT
// The crash of the host: until when each domain lived.
import { badge, type Child, drawing, element, findingList, pairs, section, withCode } from "../dom";
import type { CrashRecord, CrashWitness, Evaluation, RecordedAfter, Verdict } from "../evaluation";
import { grouped, time } from "../figures";
import { asked, domainName } from "../select";
import type { VerdictLocations } from "./answer";

/** Within this of the crash the axis is about even, further out logarithmic. */
const NEAR = 5e6;

/** A moment on an axis that has room for milliseconds before and seconds after the crash. */
function bent(nanos: number): number {
  return Math.sign(nanos) * Math.log1p(Math.abs(nanos) / NEAR);
}

/** The section; null where nothing was crashed. */
export function crash(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  const of = evaluation.crash;
  if (!of) return null;
  const verdicts = new Map(asked(evaluation, "crash").map((verdict) => [verdict.domain, verdict]));
  const earliest = Math.min(...of.witnesses.map((one) => (one.lived ?? 0) - one.uncertainty), -1e7) * 3;
  const location = (nanos: number) => {
    const [from, to] = [bent(earliest), bent(of.observed)];
    return Math.min(Math.max((bent(nanos) - from) / (to - from), 0), 1) * 100;
  };
  return section(
    "crash",
    "Crash of the host",
    element(
      "p",
      { class: "remark" },
      "Every domain measured while the host’s kernel was made to panic. A bar ends with a domain’s last sign of life; the lighter part is not certain.",
    ),
    element(
      "div",
      { class: "lives" },
      ...of.witnesses.map((witness) =>
        life(evaluation, of, witness, verdicts.get(witness.domain), locations, location),
      ),
      axis(earliest, of.observed, location),
    ),
    pairs(
      ["crashed by", withCode(of.how)],
      [
        "confirmed by",
        of.confirmed ?? element("span", { class: "bad" }, "nobody: it is not certain that it crashed"),
      ],
      ["watched after it", time(of.observed)],
    ),
  );
}

function life(
  evaluation: Evaluation,
  of: CrashRecord,
  witness: CrashWitness,
  verdict: Verdict | undefined,
  locations: VerdictLocations,
  location: (nanos: number) => number,
): HTMLElement {
  const { lived, uncertainty } = witness;
  const name = verdict?.outcome ?? "inconclusive";
  return element(
    "div",
    { class: "life", id: verdict && locations.get(verdict.id), title: verdict?.statement },
    element("b", {}, domainName(evaluation, witness.domain)),
    verdict ? badge(verdict.outcome) : element("span", {}, "not judged"),
    drawing(
      "svg",
      { role: "img", "aria-label": `${witness.domain}: ${livedWords(of, witness)}` },
      drawing("rect", { x: 0, y: 7, width: "100%", height: 8, class: "rail" }),
      lived != null && [
        drawing("rect", {
          x: 0,
          y: 4,
          width: `${location(lived + uncertainty)}%`,
          height: 14,
          class: `${name} unsure`,
        }),
        drawing("rect", { x: 0, y: 4, width: `${location(lived - uncertainty)}%`, height: 14, class: name }),
        drawing("line", {
          x1: `${location(lived)}%`,
          x2: `${location(lived)}%`,
          y1: 1,
          y2: 21,
          class: "last",
        }),
      ],
      drawing("line", { x1: `${location(0)}%`, x2: `${location(0)}%`, y1: 0, y2: 22, class: "crash" }),
    ),
    element("span", { class: "lived" }, livedWords(of, witness)),
    witness.after && element("span", { class: "recorded" }, recordedWords(witness.after)),
    witness.invalid.length > 0 && findingList(witness.invalid),
  );
}

/** What a domain's records tell of the time after the crash. */
function recordedWords({ samples, worst, lost, without_gap }: RecordedAfter): string {
  const gaps = without_gap ? "without a gap" : "with gaps";
  const missing = lost > 0 ? `, ${grouped(lost)} lost` : "";
  return `${grouped(samples)} samples recorded after the crash, ${gaps}${missing}; worst ${time(worst)}`;
}

function livedWords(of: CrashRecord, { lived, uncertainty }: CrashWitness): string {
  if (lived == null) return "it never measured";
  if (lived + uncertainty >= of.observed) return `still measuring ${time(of.observed)} after the crash`;
  return `last sample ${time(Math.abs(lived))} ${lived < 0 ? "before" : "after"} the crash, ±${time(uncertainty)}`;
}

function axis(earliest: number, observed: number, location: (nanos: number) => number): HTMLElement {
  const marks: [number, Child][] = [[0, element("b", {}, "crash")]];
  for (let power = 9; power >= 6; power--) {
    for (const mark of [10 ** power, -(10 ** power), 10 ** (power + 2)]) {
      const room = marks.every(([other]) => Math.abs(location(other) - location(mark)) > 9);
      if (mark > earliest && mark <= observed && room)
        marks.push([mark, `${mark < 0 ? "−" : "+"}${time(Math.abs(mark))}`]);
    }
  }
  return element(
    "div",
    { class: "life axis", "aria-hidden": true },
    element(
      "span",
      { class: "ratio-axis" },
      ...marks.map(([mark, words]) => element("i", { style: `left: ${location(mark)}%` }, words)),
    ),
  );
}
