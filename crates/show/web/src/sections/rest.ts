// SPDX-License-Identifier: Apache-2.0 OR MIT
// Findings, what was not measured, how to read the page, and how to do it again.
import { badge, type Child, element, findingList, pairs, section } from "../dom";
import type { Evaluation, Finding, TransferPlan } from "../evaluation";
import { namedCpus, plural, shell, time } from "../figures";
import { conditionName } from "../select";
import { disturbances } from "../walls";

function group(title: string, findings: readonly Finding[]): Child[] {
  return findings.length > 0 ? [element("h3", {}, title), findingList(findings)] : [];
}

/** Everything that is amiss, from what ruins a figure to what could be better. */
export function findings(evaluation: Evaluation): HTMLElement {
  const records = [
    ...evaluation.records,
    ...(evaluation.plan_effects?.records ?? []).map((one) => one.record),
  ];
  const invalid = records.flatMap((record) => record.invalid);
  const runs = records.flatMap((record) =>
    record.runs.flatMap((run) =>
      run.invalid.map((one) => {
        const of = `${record.id}, run ${run.order}`;
        return { ...one, location: one.location === record.id ? of : `${of}: ${one.location}` };
      }),
    ),
  );
  const shields = records.flatMap((record) => record.runs.flatMap((run) => run.shield?.findings ?? []));
  const weak = records.flatMap((record) => record.runs.flatMap((run) => run.findings));
  const transfers = evaluation.transfers ?? [];
  const of = (location: string) => (one: Finding) => ({ ...one, location: `${location}: ${one.location}` });
  const rounds = transfers.flatMap((round) => [
    ...round.invalid.map(of(round.id)),
    ...round.watched.flatMap((one) => one.invalid.map(of(`${one.domain} in ${round.id}`))),
  ]);
  const weakRounds = transfers.flatMap((round) => [
    ...round.findings,
    ...round.watched.flatMap((one) => one.findings),
  ]);
  const planned = evaluation.plan.transfer?.findings ?? [];
  const groups = [
    ...group("Records without a verdict", invalid),
    ...group("Runs that do not count", runs),
    ...group("Rounds that do not count", rounds),
    ...group("This evaluation", [...evaluation.plan.findings, ...evaluation.findings]),
    ...group("Who disturbs whom", [...planned, ...weakRounds]),
    ...group("Walls", shields),
    ...group("Runs", weak),
    ...group("The machine: what a real-time engineer would change", evaluation.machine.findings),
  ];
  return section(
    "findings",
    "Findings",
    ...(groups.length > 0 ? groups : [element("p", {}, "Nothing was found amiss.")]),
  );
}

/** What was not measured and why; and what this machine cannot host. */
export function notMeasured(evaluation: Evaluation): HTMLElement {
  const parts: Child[] = evaluation.not_measured.flatMap((one) => [
    element("h3", {}, one.what),
    findingList(
      one.findings.map((finding) =>
        one.what.endsWith(finding.location) ? { ...finding, location: "" } : finding,
      ),
    ),
  ]);
  const named = evaluation.not_measured.map((one) => one.what);
  const lacking = evaluation.availability.filter((one) => {
    const { kind, engine } = one.domain;
    const name = engine != null && engine !== "embedded" ? `${kind}:${engine}` : kind;
    return !one.available && !named.some((what) => what === name || what.endsWith(` ${name}`));
  });
  const rest: Child[] = lacking.flatMap((one) => [
    element("h3", {}, one.domain.kind, element("small", {}, ` ${one.description}`)),
    findingList(one.findings),
  ]);
  const all = [...parts, ...rest];
  return section(
    "not-measured",
    "Not measured, and why",
    ...(all.length > 0 ? all : [element("p", {}, "Everything that was planned was measured.")]),
  );
}

/** The words of this page; those of disturbances only where there were any. */
export function reading(evaluation: Evaluation): HTMLElement {
  const disturbed: readonly (readonly [Child, string])[] = [
    [
      "block",
      "One CPU is stopped for a known time, again and again at random moments. Whoever shares that CPU with the blocked domain, or a lock that it held, is late by as much.",
    ],
    [
      "transfer τ",
      "Median of the worst latencies of windows with a block, less that of windows without, divided by the length of the blocks. Near 1: no wall. Near 0 with a tight interval: it holds.",
    ],
    [
      "control window",
      "As long as a window with a block, and without one. What is as bad in these has another cause.",
    ],
    [
      "emulated",
      "Software played the processor. Who is stopped together with whom is real there, and how long anything takes is not.",
    ],
  ];
  const words: readonly (readonly [Child, string])[] = [
    [
      badge("holds"),
      "The deadline is kept, or the wall keeps the load out, as far as the exposure beside it shows. It is never more than that: a longer run may find what this one did not.",
    ],
    [
      badge("leaks"),
      "A neighbour’s load, or a block elsewhere, reaches this domain by more than the tolerance, even at the favourable end of the interval.",
    ],
    [
      badge("fails"),
      "The deadline was missed, or the domain is slower than the host by more than the tolerance, or it ended with its host.",
    ],
    [badge("inconclusive"), "The exposure does not decide it. Measure longer."],
    [
      "exposure",
      "Samples, time and runs that a figure rests on. Ten times the time bounds a chance ten times as tight; sampling faster does not stretch the time between misses.",
    ],
    [
      "as seen, corrected",
      "A thread that is held up for several periods yields one late sample and no others. Corrected adds one for each missed period, as late as a wake-up at its moment would have been.",
    ],
    [
      "maximum",
      "The latest sample seen is a lower bound of the worst case, and the noisiest of all figures: compare quantiles, and judge by deadlines.",
    ],
    ...(disturbances(evaluation).length > 0 ? disturbed : []),
    [
      "interval",
      "Computed by resampling whole blocks of a second or more, because neighbouring samples are strongly dependent.",
    ],
  ];
  return section(
    "reading",
    "How to read this page",
    element(
      "dl",
      { class: "words" },
      ...words.map(([word, text]) => element("div", {}, element("dt", {}, word), element("dd", {}, text))),
    ),
  );
}

function transferWords(plan: TransferPlan | null | undefined): string | null {
  if (!plan) return null;
  const groups = plan.groups.map((group) =>
    group.participants.map((one) => `${one.domain} on ${namedCpus(one.cpus)}`).join(", "),
  );
  const count = plan.groups.reduce((sum, group) => sum + group.disturbances.length, 0);
  return `${plural(count, "disturbance")} of ${groups.join("; then ")}; ${plural(plan.blocks, "block")} a round, ${plan.block_factor} times as long as the worst quiet latency and at least ${time(plan.shortest_block)}; loads for ${time(plan.loaded)}; wakeup every ${time(plan.interval)}, ${plan.policy}`;
}

/** Where it comes from, and how to do it again. */
export function provenance(evaluation: Evaluation, seed: string | null, document: string): HTMLElement {
  const { plan } = evaluation;
  const save = element(
    "button",
    {
      type: "button",
      onclick: () => {
        const url = URL.createObjectURL(new Blob([document], { type: "application/json" }));
        element("a", { href: url, download: "evaluation.json" }).click();
        URL.revokeObjectURL(url);
      },
    },
    "Save evaluation.json",
  );
  return section(
    "again",
    "How to do it again",
    pairs(
      ["command", element("code", {}, shell(evaluation.command))],
      ["version", `rampart ${evaluation.tool_version}, document version ${evaluation.schema_version}`],
      ["seed", seed ?? String(plan.seed)],
      [
        "plan",
        `${plural(plan.domains.length, "domain")} (${plan.domains.map((domain) => domain.name).join(", ")}) × ${plural(plan.conditions.length, "condition")} (${plan.conditions.map(conditionName).join(", ")}) × ${plural(plan.meters.length, "meter")} (${plan.meters.map((meter) => meter.meter).join(", ")}), ${plural(plan.repetitions, "repetition")} of ${time(plan.run_duration)} each, in turn; housekeeping ${namedCpus(plan.housekeeping)}; ${time(plan.total)} in all`,
      ],
      ["disturbances", transferWords(plan.transfer)],
      ["began, written", `${evaluation.started}, ${evaluation.written}`],
    ),
    element("p", { class: "screen" }, "The whole document is in this page: ", save),
  );
}
