// SPDX-License-Identifier: Apache-2.0 OR MIT
// The verdicts with the figures they rest on.
import { badge, type Child, element, row, scrolling, section, table } from "../dom";
import type { Evaluation, Interval, Verdict } from "../evaluation";
import { chance, count, exposure, grouped, percent, prose, quantileName, ratio, time } from "../figures";
import { intervalDrawing, ratioAxis, ratioLocation, ratioMarks } from "../interval";
import { asked, conditionName, domainName } from "../select";
import type { VerdictLocations } from "./answer";

/** Whether a table must name the meter of each row. */
function meterColumn(verdicts: readonly Verdict[]): boolean {
  return new Set(verdicts.map((verdict) => verdict.meter)).size > 1;
}

/** Deadline: exceedances, the bound of their chance, the exposure, in words. */
export function deadline(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  const verdicts = asked(evaluation, "deadline");
  if (verdicts.length === 0) return null;
  const several = meterColumn(verdicts);
  const own = evaluation.plan.domains.some((one) => one.deadline != null);
  const levels = verdicts.flatMap((verdict) =>
    verdict.figures && "deadline" in verdict.figures ? verdict.figures.deadline.confidence : [],
  );
  const level = [...new Set(levels)].map((one) => percent(one)).join(", ");
  const header = [
    "domain",
    "condition",
    ...(several ? ["meter"] : []),
    "verdict",
    ...(own ? ["deadline"] : []),
    "over",
    "cycles",
    "latest",
    `what can be said${level ? ` with ${level} confidence` : ""}`,
    "exposure",
  ];
  const classes = [
    "",
    "",
    ...(several ? [""] : []),
    "",
    ...(own ? ["figure"] : []),
    "figure",
    "figure",
    "figure",
    "",
    "exposure",
  ];
  const rows = verdicts.map((verdict) => {
    const figures = verdict.figures && "deadline" in verdict.figures ? verdict.figures.deadline : null;
    return row(
      [
        domainName(evaluation, verdict.domain),
        conditionName(verdict.condition),
        ...(several ? [verdict.meter] : []),
        badge(verdict.outcome),
        ...(own ? [figures ? time(figures.deadline) : "–"] : []),
        figures ? grouped(figures.exceedances) : "–",
        figures ? count(figures.cycles) : "–",
        figures ? time(figures.max) : "–",
        figures === null
          ? prose(verdict.statement)
          : [
              "at most ",
              element("b", {}, chance(figures.upper_bound)),
              figures.upper_bound >= 0.1 ? " of the cycles miss it" : " cycles misses it",
              figures.time_between_violations != null && [
                "; misses at least ",
                element("b", {}, time(figures.time_between_violations)),
                " apart",
              ],
            ],
        exposure(verdict.exposure),
      ],
      classes,
      { id: locations.get(verdict.id), title: verdict.statement },
    );
  });
  return section(
    "deadline",
    own ? "Deadline of each domain" : `Deadline ${time(evaluation.plan.deadline)}`,
    element(
      "p",
      { class: "remark" },
      "A miss is a sample over the deadline, or a missed period whose corrected lateness is over it. Never having seen one in n cycles only says that its chance is under about 3/n, and in a time T that misses are at least about T/3 apart: a longer run says more.",
    ),
    scrolling("Verdicts on the deadline", table("Verdicts on the deadline", header, classes, [rows])),
  );
}

type Ratios = {
  ratios: readonly [number, Interval][];
  tolerance: number;
  batches: readonly [number, number];
  detectable: number | null;
};

function ratiosOf(verdict: Verdict): Ratios | null {
  const { figures } = verdict;
  if (!figures) return null;
  if ("interference" in figures) {
    const { factors, tolerance, batches } = figures.interference;
    return { ratios: factors, tolerance, batches, detectable: null };
  }
  if ("same-as-host" in figures) {
    const { ratios, tolerance, batches, smallest_detectable } = figures["same-as-host"];
    return { ratios, tolerance, batches, detectable: smallest_detectable };
  }
  return null;
}

function ratioTable(
  evaluation: Evaluation,
  verdicts: readonly Verdict[],
  locations: VerdictLocations,
  caption: string,
): HTMLElement {
  const several = meterColumn(verdicts);
  const all = verdicts.map((verdict) => ({ verdict, of: ratiosOf(verdict) }));
  const tolerance = Math.max(...all.map(({ of }) => of?.tolerance ?? 1));
  const axis = ratioAxis(
    all.flatMap(({ of }) => of?.ratios.map(([, interval]) => interval) ?? []),
    tolerance,
  );
  const names = ["domain", "condition", ...(several ? ["meter"] : []), "verdict"];
  const compared = all.some(({ of }) => of !== null && of.ratios.length > 0);
  const header = [...names, ...(compared ? ["quantile", "ratio", "interval", ratioMarks(axis)] : ["why"])];
  const classes = [...names.map(() => ""), ...(compared ? ["", "figure", "figure", "drawing"] : [""])];
  const bodies = all.map(({ verdict, of }) => {
    const ratios = of?.ratios ?? [];
    const span = Math.max(ratios.length, 1);
    const spanned = (cell: Child, name: string) => ({ cell, attributes: { rowspan: span, class: name } });
    const names = [
      spanned(domainName(evaluation, verdict.domain), "spanning"),
      spanned(conditionName(verdict.condition), "spanning"),
      ...(several ? [spanned(verdict.meter, "spanning")] : []),
      spanned(badge(verdict.outcome), "spanning"),
    ];
    const attributes = {
      id: locations.get(verdict.id),
      title: `${verdict.statement} — ${exposure(verdict.exposure)}${of ? `; ${of.batches[0]} and ${of.batches[1]} batches compared` : ""}`,
    };
    if (of === null || ratios.length === 0) {
      return [
        row(
          [
            ...names,
            { cell: prose(verdict.statement), attributes: { colspan: compared ? 4 : 1, class: "" } },
          ],
          classes,
          attributes,
        ),
      ];
    }
    return ratios.map(([part, interval], index) => {
      const figures: Child[] = [
        quantileName(part),
        element("b", {}, ratio(interval.estimate)),
        `${ratio(interval.low)} – ${ratio(interval.high)}`,
        intervalDrawing(
          interval,
          (value) => ratioLocation(value, axis),
          [1 / of.tolerance, of.tolerance],
          1,
          verdict.outcome,
        ),
      ];
      if (index === 0) return row([...names, ...figures], classes, attributes);
      const rest = classes.slice(classes.length - 4);
      return element(
        "tr",
        {},
        ...figures.map((cell, at) => element("td", { class: rest[at] || null }, cell)),
      );
    });
  });
  return scrolling(caption, table(caption, header, classes, bodies, { class: "ratios" }));
}

function confidence(verdicts: readonly Verdict[]): string {
  const levels = verdicts.flatMap(
    (verdict) => ratiosOf(verdict)?.ratios.map(([, interval]) => interval.confidence) ?? [],
  );
  return [...new Set(levels)].map((level) => `${percent(level)} `).join("or ");
}

/** Interference factors: loaded ÷ idle. */
export function interference(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  const verdicts = asked(evaluation, "interference");
  if (verdicts.length === 0) return null;
  const tolerance = verdicts.flatMap((verdict) => ratiosOf(verdict)?.tolerance ?? [])[0];
  return section(
    "interference",
    "Interference",
    element(
      "p",
      { class: "remark" },
      `A quantile under load ÷ the same quantile idle, with its ${confidence(verdicts)}interval: 1 means that the neighbour’s load is not felt. `,
      tolerance !== undefined && `The wall counts as holding up to ${ratio(tolerance)} (shaded).`,
    ),
    ratioTable(evaluation, verdicts, locations, "Interference factors"),
  );
}

/** Ratios to the host. */
export function sameAsHost(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  const verdicts = asked(evaluation, "same-as-host");
  if (verdicts.length === 0) return null;
  const first = verdicts.flatMap((verdict) => ratiosOf(verdict) ?? [])[0];
  const detectable = verdicts.flatMap((verdict) => ratiosOf(verdict)?.detectable ?? []);
  return section(
    "same-as-host",
    "Compared with the host",
    element(
      "p",
      { class: "remark" },
      `A quantile in the domain ÷ the same quantile on the host, measured in turn, with its ${confidence(verdicts)}interval: under 1 the domain is quicker. `,
      first !== undefined && `Up to ${ratio(first.tolerance)} counts as the same (shaded). `,
      detectable.length > 0 && `This exposure tells ratios from ${ratio(Math.max(...detectable))} on from 1.`,
    ),
    ratioTable(evaluation, verdicts, locations, "Ratios to the host"),
  );
}
