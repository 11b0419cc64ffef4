// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the plan of the machine changed, and which of its changes mattered.
import {
  type Child,
  element,
  findingList,
  row,
  scrolling,
  section,
  table,
  withCode,
  wordBadge,
} from "../dom";
import type {
  ChangeOutcome,
  EffectOutcome,
  EffectRatio,
  Evaluation,
  PlanChange,
  PlanEffect,
  PlanEffects,
  VerdictOutcome,
} from "../evaluation";
import { exposure, plural, prose, quantileName, ratio } from "../figures";
import { intervalDrawing, ratioAxis, ratioLocation, ratioMarks } from "../interval";
import { conditionName, domainName } from "../select";
import { summed, unwantedActivityTable } from "./unwanted-activity";

const EFFECTS: { [of in EffectOutcome]: VerdictOutcome | null } = {
  better: "holds",
  worse: "fails",
  "no-difference-shown": null,
  inconclusive: "inconclusive",
};

const CHANGES: { [of in ChangeOutcome]: { colour: VerdictOutcome | null; word: string } } = {
  mattered: { colour: "holds", word: "mattered" },
  backfired: { colour: "fails", word: "backfired" },
  mixed: { colour: "leaks", word: "better and worse" },
  "no-difference-shown": { colour: null, word: "no difference shown" },
  inconclusive: { colour: "inconclusive", word: "inconclusive" },
};

/** The sections; none where nothing was compared. */
export function planEffects(evaluation: Evaluation): (HTMLElement | null)[] {
  const effects = evaluation.plan_effects;
  return effects ? [whole(evaluation, effects), parts(effects)] : [];
}

/** Name of a change as its leg has it. */
export function changeName(change: PlanChange): string {
  return change.kind === "isolation" ? `wall of ${change.name}` : change.name;
}

function whole(evaluation: Evaluation, effects: PlanEffects): HTMLElement | null {
  const rows = effects.effects.filter((effect) => effect.variant === "before");
  if (rows.length === 0 && effects.not_compared.length === 0) return null;
  const compared: Child[] =
    rows.length === 0
      ? []
      : [
          element(
            "p",
            { class: "remark" },
            "A quantile with the plan applied ÷ the same quantile without it, measured in turn on the same CPUs under the same policy, with its 95 % interval: under 1 the plan shortens it. Bold differs, corrected for all that is compared here (Holm); the highest quantile that differs decides. ",
            `Nothing differs where all intervals lie within ${ratio(1 / effects.tolerance)} to ${ratio(effects.tolerance)} (shaded). `,
            `${plural(effects.changes.length, "change")}: ${effects.changes.map(changeName).join(", ")}.`,
          ),
          effectTable(evaluation, rows, effects.tolerance),
          ...unwantedActivityTable(
            "What came to the domains’ CPUs in each second",
            ["domain", "condition"],
            rows.flatMap((effect) =>
              effect.unwanted_activity
                ? [
                    {
                      names: [domainName(evaluation, effect.domain), conditionName(effect.condition)],
                      of: effect.unwanted_activity,
                    },
                  ]
                : [],
            ),
          ),
        ];
  return section(
    "plan-effects",
    "What the plan changed",
    ...compared,
    effects.not_compared.length > 0 && element("h3", {}, "Not part of the comparison"),
    ...effects.not_compared.flatMap((one) => [
      element("h4", {}, one.what),
      findingList(one.findings.map((finding) => ({ ...finding, location: "" }))),
    ]),
  );
}

function effectTable(evaluation: Evaluation, effects: readonly PlanEffect[], tolerance: number): HTMLElement {
  const several = new Set(effects.map((effect) => effect.meter)).size > 1;
  const axis = ratioAxis(
    effects.flatMap((effect) => effect.ratios.map((one) => one.ratio)),
    tolerance,
  );
  const names = ["domain", "condition", ...(several ? ["meter"] : []), "verdict"];
  const header = [...names, "quantile", "ratio", "interval", ratioMarks(axis)];
  const classes = [...names.map(() => ""), "", "figure", "figure", "drawing"];
  const bodies = effects.map((effect) => {
    const spanned = (cell: Child) => ({
      cell,
      attributes: { rowspan: Math.max(effect.ratios.length, 1), class: "spanning" },
    });
    const cells = [
      spanned(domainName(evaluation, effect.domain)),
      spanned(conditionName(effect.condition)),
      ...(several ? [spanned(effect.meter)] : []),
      spanned(wordBadge(EFFECTS[effect.outcome], effect.outcome.replaceAll("-", " "))),
    ];
    const [withIt, without] = effect.exposure;
    const title = `${effect.statement} — with: ${exposure(withIt)}; without: ${exposure(without)}`;
    if (effect.ratios.length === 0) {
      const why = { cell: prose(effect.statement), attributes: { colspan: 4, class: "" } };
      return [row([...cells, why], classes, { title })];
    }
    return effect.ratios.map((one, index) => {
      const figures = figuresOf(one, axis, tolerance);
      if (index === 0) return row([...cells, ...figures], classes, { title });
      const rest = classes.slice(classes.length - 4);
      return element(
        "tr",
        {},
        ...figures.map((cell, at) => element("td", { class: rest[at] || null }, cell)),
      );
    });
  });
  const caption = "With the plan against without";
  return scrolling(caption, table(caption, header, classes, bodies, { class: "ratios" }));
}

function figuresOf(one: EffectRatio, axis: readonly [number, number], tolerance: number): Child[] {
  const drawn = !one.differs ? "inconclusive" : one.ratio.estimate < 1 ? "holds" : "fails";
  return [
    one.quantile >= 1 ? "worst of a run" : quantileName(one.quantile),
    element(one.differs ? "b" : "span", {}, ratio(one.ratio.estimate)),
    `${ratio(one.ratio.low)} – ${ratio(one.ratio.high)}`,
    intervalDrawing(one.ratio, (value) => ratioLocation(value, axis), [1 / tolerance, tolerance], 1, drawn),
  ];
}

function parts(effects: PlanEffects): HTMLElement | null {
  if (effects.ablation.length === 0) return null;
  const compared = effects.effects.filter((effect) => effect.variant !== "before").length;
  const rows = effects.ablation.map((one) => {
    const { colour, word } = CHANGES[one.outcome];
    return row([
      [element("b", {}, changeName(one.change)), element("small", {}, ` ${one.change.title}`)],
      wordBadge(colour, word),
      withCode(one.statement),
    ]);
  });
  const caption = "Which changes mattered";
  return section(
    "ablation",
    "Which changes of the plan mattered",
    element(
      "p",
      { class: "remark" },
      `The whole plan against the plan without each change, measured in turn: ${plural(compared, "comparison")}, corrected for each other (Holm), so that any at all is named a difference by mistake in at most one evaluation of twenty.`,
    ),
    scrolling(caption, table(caption, ["change", "verdict", "why"], ["", "", ""], [rows])),
    ...unwantedActivityTable(
      "What came to the domains’ CPUs in each second, with the plan and without each change",
      ["change"],
      effects.changes.flatMap((change) => {
        const all = effects.effects.flatMap((effect) =>
          isWithout(effect.variant, change) && effect.unwanted_activity ? [effect.unwanted_activity] : [],
        );
        return all.length === 0 ? [] : [{ names: [changeName(change)], of: summed(all) }];
      }),
    ),
  );
}

function isWithout(variant: PlanEffect["variant"], change: PlanChange): boolean {
  return (
    typeof variant === "object" &&
    variant.without.kind === change.kind &&
    variant.without.name === change.name
  );
}
