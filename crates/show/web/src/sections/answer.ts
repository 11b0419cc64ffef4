// SPDX-License-Identifier: Apache-2.0 OR MIT
// The top of the page: what machine, how far, the answers.
import { badge, type Child, element, row, shortBadge, table } from "../dom";
import type { Evaluation, Machine, MeterKind, PreemptionModel, Question, Verdict } from "../evaluation";
import { moment, namedCpus, plural, prose, time } from "../figures";
import { gravest, simulated } from "../select";
import { isFelt, isOwn, verdictSubject } from "../walls";
import { bench } from "./bench";

const PREEMPTION: { [model in PreemptionModel]: string } = {
  none: "PREEMPT_NONE",
  voluntary: "PREEMPT_VOLUNTARY",
  full: "PREEMPT",
  lazy: "PREEMPT_LAZY",
  "real-time": "PREEMPT_RT",
  dynamic: "PREEMPT_DYNAMIC",
  unknown: "preemption unknown",
};

/** The kernel's preemption model in the words of its configuration. */
export function preemption(model: PreemptionModel): string {
  return PREEMPTION[model];
}

/** Whether the machine is a guest, in a few words. */
export function virtualisation(machine: Machine): string {
  const { hypervisor, emulated } = machine.virtualisation;
  if (emulated) return hypervisor ? `emulated (${hypervisor})` : "emulated";
  return hypervisor ? `a guest of ${hypervisor}` : "bare metal";
}

/** The element that a verdict's evidence stands in. */
export type VerdictLocations = ReadonlyMap<string, string>;

/** An anchor for each verdict. Their own ids may hold any character. */
export function verdictLocations(evaluation: Evaluation): VerdictLocations {
  return new Map(evaluation.verdicts.map((verdict, index) => [verdict.id, `verdict-${index}`]));
}

/** How many CPUs a list of the kernel names. */
export function cpuCount(list: string): number {
  if (list === "") return 0;
  return list.split(",").reduce((sum, part) => {
    const [low = 0, high = low] = part.split("-").map(Number);
    return sum + high - low + 1;
  }, 0);
}

/** Machine, state, and what must be known before any figure is read. */
export function head(evaluation: Evaluation): Child[] {
  const { machine } = evaluation;
  const facts = [
    `${machine.processor}, ${plural(cpuCount(machine.topology.online), "CPU")}`,
    `Linux ${machine.kernel_release} ${preemption(machine.preemption)}`,
    machine.distribution,
    simulated(evaluation.bench) === null ? virtualisation(machine) : "simulated",
  ].filter(Boolean);
  return [
    element("h1", {}, machine.host_name || "unnamed machine"),
    element("p", { class: "facts" }, facts.join(" · "), " ", element("a", { href: "#machine" }, "all facts")),
    bench(evaluation.bench),
    ...alerts(evaluation),
    element("p", { class: "state" }, ...stateLine(evaluation)),
  ];
}

function stateLine(evaluation: Evaluation): Child[] {
  const [made, planned] = evaluation.runs;
  const { plan } = evaluation;
  const lasted = (Date.parse(evaluation.written) - Date.parse(evaluation.started)) * 1e6;
  const complete = evaluation.state === "complete" && made === planned;
  return [
    complete && element("span", { class: "complete" }, `Complete: ${made} of ${planned} runs`),
    complete && " · ",
    `began ${moment(Date.parse(evaluation.started))}`,
    Number.isFinite(lasted) &&
      lasted > 0 &&
      ` · ${evaluation.state === "complete" ? "took" : "last written after"} ${time(lasted)}`,
    " · deadline ",
    element("b", {}, time(plan.deadline)),
    !plan.deadline_from_user && " (the meter’s own period; --deadline names another)",
    ` · rampart ${evaluation.tool_version}`,
  ];
}

function alert(kind: "grave" | "careful", title: string, ...text: Child[]): HTMLElement {
  return element("div", { class: `alert ${kind}`, role: "note" }, element("strong", {}, title), " ", ...text);
}

function alerts(evaluation: Evaluation): HTMLElement[] {
  const found: HTMLElement[] = [];
  const [made, planned] = evaluation.runs;
  if (evaluation.machine.virtualisation.emulated && simulated(evaluation.bench) === null) {
    found.push(
      alert(
        "grave",
        "Emulated machine: its microseconds mean nothing.",
        "Its CPUs are software. Only the structure of disturbances, who reaches whom, can be read from this page.",
      ),
    );
  }
  if (evaluation.state === "running") {
    found.push(
      alert(
        "careful",
        `Killed half-way, or still running: ${made} of ${planned} runs.`,
        "Everything below rests on these alone.",
      ),
    );
  } else if (evaluation.state === "ended-early") {
    found.push(
      alert(
        "careful",
        `Ended early on request: ${made} of ${planned} runs.`,
        "Everything below rests on these alone.",
      ),
    );
  } else if (made !== planned) {
    found.push(alert("careful", `Only ${made} of ${planned} runs were made.`));
  }
  const invalid = evaluation.records.filter((record) => record.invalid.length > 0);
  if (invalid.length > 0) {
    found.push(
      alert(
        "careful",
        `${invalid.length} of ${plural(evaluation.records.length, "record")} ${invalid.length === 1 ? "is" : "are"} invalid`,
        "and carry no verdict: ",
        ...invalid.flatMap((record, index) => [index > 0 && ", ", element("b", {}, record.id)]),
        ". ",
        element("a", { href: "#findings" }, "Why"),
      ),
    );
  }
  return found;
}

const QUESTIONS: readonly (readonly [Question, string])[] = [
  ["deadline", "deadline"],
  ["same-as-host", "as the host"],
  ["interference", "neighbours"],
  ["transfer", "blocks elsewhere"],
  ["crash", "crash of the host"],
];

/** One sentence for each domain, with the gravest outcome of each question. */
export function sentences(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  if (evaluation.comparison.sentences.length === 0) return null;
  return element(
    "div",
    { class: "sentences" },
    ...evaluation.comparison.sentences.map(([name, sentence]) => {
      const domain = evaluation.plan.domains.find((plan) => plan.name === name);
      const badges = QUESTIONS.map(([question, words]) => {
        const all = evaluation.verdicts.filter(
          (one) => one.domain === name && one.question === question && one.disturbance?.domain !== name,
        );
        const verdict = gravest(all);
        if (verdict === null) return null;
        const under = verdictSubject(verdict);
        return badge(verdict.outcome, words, {
          href: `#${locations.get(verdict.id)}`,
          title: `${under}: ${verdict.statement}${all.length > 1 ? ` — the gravest of ${all.length} verdicts` : ""}`,
        });
      });
      return element(
        "article",
        { class: "answer" },
        element("h3", {}, name, domain && element("small", {}, ` ${namedCpus(domain.cpus)}`)),
        element("p", {}, prose(sentence)),
        element("p", { class: "badges" }, ...badges),
        domain && element("p", { class: "what" }, domain.description),
      );
    }),
  );
}

/** More than these are folded, those that hold first. */
const SHOWN = 6;

/** Signs of the verdicts that an answer rests on; the outcome's word is for those who do not see the sign. */
function evidence(
  domain: string,
  verdicts: readonly Verdict[],
  locations: VerdictLocations,
  leading: MeterKind | undefined,
): HTMLElement | null {
  if (verdicts.length === 0) return null;
  const sign = (verdict: Verdict) => {
    const own = verdict.disturbance && isOwn(verdict.disturbance, verdict.domain);
    const control = own && verdict.question === "transfer";
    const about = [
      verdictSubject(verdict),
      verdict.meter === leading || verdict.disturbance ? "" : ` ${verdict.meter}`,
      verdict.domain === domain ? "" : ` in ${verdict.domain}`,
      control ? ` (control${isFelt(verdict) ? "" : " not felt"})` : "",
    ].join("");
    const attributes = {
      href: `#${locations.get(verdict.id)}`,
      title: `${verdict.outcome}: ${verdict.statement}`,
    };
    const made = control
      ? element(
          "a",
          { ...attributes, class: "badge own" },
          element("span", { "aria-hidden": true }, "● "),
          about,
        )
      : shortBadge(verdict.outcome, about, attributes);
    return [made, " "];
  };
  const holding = verdicts.length > SHOWN ? verdicts.filter((verdict) => verdict.outcome === "holds") : [];
  const shown = verdicts.filter((verdict) => !holding.includes(verdict));
  return element(
    "span",
    { class: "evidence" },
    ...shown.flatMap(sign),
    holding.length > 0 &&
      element(
        "details",
        { class: "inline" },
        element("summary", {}, `${shown.length > 0 ? "and " : ""}${holding.length} that hold`),
        element("span", { class: "evidence" }, ...holding.flatMap(sign)),
      ),
  );
}

/** The questions, each answered for each domain, each answer with its evidence. */
export function comparison(evaluation: Evaluation, locations: VerdictLocations): HTMLElement | null {
  const { rows } = evaluation.comparison;
  const first = rows[0];
  if (first === undefined) return null;
  const leading = evaluation.plan.meters[0]?.meter;
  const body = rows.map((of) =>
    row([
      of.question,
      ...of.cells.map((cell) => {
        const verdicts = cell.verdicts.flatMap((id) => evaluation.verdicts.filter((one) => one.id === id));
        const outcome = cell.outcome ?? "none";
        return {
          cell: [
            element("strong", { class: `answer-word ${outcome}` }, cell.answer),
            element("span", { class: "reason" }, prose(cell.reason)),
            evidence(cell.domain, verdicts, locations, leading),
          ],
          attributes: { "data-domain": cell.domain },
        };
      }),
    ]),
  );
  return table(
    "The questions, each answered for each domain",
    [
      { cell: element("span", { class: "unseen" }, "question"), attributes: {} },
      ...first.cells.map((cell) => cell.domain),
    ],
    [],
    [body],
    { class: "comparison" },
  );
}
