// SPDX-License-Identifier: Apache-2.0 OR MIT
// What each guest got: settings, threads, clock.
import { type Child, element, findingList, pairs, row, scrolling, section, table } from "../dom";
import type { Evaluation, GuestReport, GuestThread } from "../evaluation";
import { bytes, shell, time } from "../figures";
import { domainName } from "../select";
import { uncertainty } from "../walls";

/** Every report on a guest: of runs first, then of rounds. */
function reports(evaluation: Evaluation, domain: string): GuestReport[] {
  const runs = evaluation.records
    .filter((record) => record.domain === domain)
    .flatMap((record) => record.runs.flatMap((run) => run.guest ?? []));
  const rounds = (evaluation.transfers ?? []).flatMap((round) =>
    round.watched.filter((one) => one.domain === domain).flatMap((one) => one.guest ?? []),
  );
  return [...runs, ...rounds];
}

/** The section; null where no domain is a guest. */
export function guests(evaluation: Evaluation): HTMLElement | null {
  const all = evaluation.plan.domains
    .map(({ name }) => ({ name, of: reports(evaluation, name) }))
    .filter(({ of }) => of.length > 0);
  if (all.length === 0) return null;
  return section("guests", "Guests", ...all.map(({ name, of }) => guest(domainName(evaluation, name), of)));
}

function guest(name: Child, all: readonly GuestReport[]): HTMLElement {
  const last = all[all.length - 1] as GuestReport;
  // Knobs are told of the last; where another run had other ones, that must be said.
  const settings = (of: GuestReport) => JSON.stringify([of.knobs, of.pinned, of.accelerator]);
  const other = all.filter((one) => settings(one) !== settings(last)).length;
  const unsatisfied = last.knobs.filter((knob) => !knob.satisfied).length;
  return element(
    "article",
    { class: "guest" },
    element("h3", {}, name),
    element(
      "div",
      { class: "two-columns" },
      pairs(
        [
          "run by",
          last.accelerator === "kvm"
            ? "KVM"
            : element("span", { class: "bad" }, "software (TCG): its times are emulated"),
        ],
        ["program", last.program],
        ["its kernel", last.kernel],
        ["its kernel command line", element("code", {}, last.kernel_command_line)],
        ["first word", `${time(last.boot_time)} after its start`],
      ),
      pairs(
        [
          "memory",
          `${bytes(last.memory_bytes)} on pages of ${bytes(last.page_bytes)}, ${bytes(last.locked_bytes)} of the program locked`,
        ],
        ["its CPUs", pinned(last)],
        ["its clock", clock(all)],
      ),
    ),
    element("h4", {}, "Settings that real-time guests are known to need"),
    element(
      "p",
      { class: "remark" },
      `${last.knobs.length - unsatisfied} of ${last.knobs.length} are as expected.`,
      other > 0 && ` ${other} of ${all.length} reports differ from this one.`,
    ),
    scrolling("Settings", knobs(last)),
    element("h4", {}, "Threads of the program, at the end"),
    scrolling("Threads", threads(last.threads)),
    element(
      "details",
      {},
      element("summary", {}, "Command line"),
      element("code", { class: "block" }, shell(last.command)),
    ),
    last.findings.length > 0 && findingList(last.findings),
  );
}

function pinned({ pinned: all }: GuestReport): Child {
  return all.map((host, guest) =>
    element("div", {}, `CPU ${guest} ${host == null ? "floats" : `is bound to CPU ${host} of the host`}`),
  );
}

function clock(all: readonly GuestReport[]): string | null {
  const relations = all.flatMap((one) => one.clock);
  if (relations.length === 0) return null;
  const exchanges = Math.min(...relations.map((one) => one.exchanges));
  return `related to the host’s ${relations.length} times, before and after each measurement, within ±${time(uncertainty(relations))} or better (${exchanges} exchanges each)`;
}

function knobs({ knobs: all }: GuestReport): HTMLElement {
  const sorted = [...all].sort((a, b) => Number(a.satisfied) - Number(b.satisfied));
  const rows = sorted.map((knob) =>
    row([
      knob.location,
      element(
        "span",
        { class: `badge ${knob.satisfied ? "holds" : "leaks"}` },
        knob.satisfied ? "✓ as expected" : "✗ missing",
      ),
      element("code", {}, knob.found),
      element("code", {}, knob.expected),
      knob.applied ? "Rampart" : "–",
      knob.reason,
    ]),
  );
  return table("Settings", ["setting", "", "found", "expected", "set by", "why"], [], [rows], { class: "knobs" });
}

function threads(all: readonly GuestThread[]): HTMLElement {
  const rows = all.map((thread) =>
    row(
      [
        thread.name,
        thread.role === "other" ? "everything else" : `virtual CPU ${thread.role["virtual-cpu"]}`,
        thread.cpus,
        thread.policy,
        thread.thread,
      ],
      ["", "", "figure", "figure", "figure"],
    ),
  );
  return table(
    "Threads",
    ["thread", "for", "on CPUs", "policy", "id"],
    ["", "", "figure", "figure", "figure"],
    [rows],
  );
}
