// SPDX-License-Identifier: Apache-2.0 OR MIT
// What came to the domains' CPUs with the plan and without: counts of the kernel, which hold where times
// are emulated, too.
import { type Child, element, row, scrolling, table } from "../dom";
import type { UnwantedActivity } from "../evaluation";
import { time } from "../figures";

/** With the plan, and without it or a part of it. */
export type Compared = [UnwantedActivity, UnwantedActivity];

type Counted = "device_interrupts" | "device_softirqs" | "cross_calls" | "timer_interrupts";
type Timed = "kernel_threads" | "programs";

const COUNTED: [Counted, string][] = [
  ["device_interrupts", "device interrupts"],
  ["device_softirqs", "device softirqs"],
  ["cross_calls", "calls of other CPUs"],
  ["timer_interrupts", "timer interrupts"],
];
const TIMED: [Timed, string][] = [
  ["kernel_threads", "kernel threads"],
  ["programs", "programs"],
];

/** Both of each, all together. */
export function summed(all: readonly Compared[]): Compared {
  return all.reduce(([withIt, without], [one, other]) => [add(withIt, one), add(without, other)]);
}

function add(one: UnwantedActivity, other: UnwantedActivity): UnwantedActivity {
  const sum = { ...one, watched: one.watched + other.watched };
  for (const [key] of [...COUNTED, ...TIMED]) sum[key] = one[key] + other[key];
  return sum;
}

/** The table with what it is; nothing where nothing was counted. */
export function unwantedActivityTable(
  caption: string,
  names: readonly string[],
  rows: readonly { names: Child[]; of: Compared }[],
): Child[] {
  if (rows.length === 0) return [];
  const header = [...names, ...[...COUNTED, ...TIMED].map(([, name]) => name), "watched"];
  const classes = [...names.map(() => ""), ...header.slice(names.length).map(() => "figure")];
  const bodies = rows.map(({ names: cells, of: [withIt, without] }) =>
    row(
      [
        ...cells,
        ...COUNTED.map(([key]) => both(rate(withIt, withIt[key]), rate(without, without[key]))),
        ...TIMED.map(([key]) => both(share(withIt, withIt[key]), share(without, without[key]))),
        `${time(withIt.watched)} + ${time(without.watched)}`,
      ],
      classes,
    ),
  );
  return [
    element("h3", {}, caption),
    element(
      "p",
      { class: "remark" },
      "With the plan / without. Counted by the kernel, all CPUs of a domain together; kernel threads and programs by their CPU time. What the evaluation itself runs there is left out, but for the timer interrupts that the meter asks for. True of an emulated machine, too.",
    ),
    scrolling(caption, table(caption, header, classes, [bodies])),
  ];
}

function both(withIt: string, without: string): string {
  return `${withIt} / ${without}`;
}

function rate(of: UnwantedActivity, count: number): string {
  const value = count / Math.max(of.watched / 1e9, Number.MIN_VALUE);
  return value === 0 ? "0" : value.toFixed(value < 10 ? 1 : 0);
}

/** CPU time of each second. */
function share(of: UnwantedActivity, used: number): string {
  return used === 0 ? "0" : time(Math.round(used / Math.max(of.watched / 1e9, Number.MIN_VALUE)));
}
