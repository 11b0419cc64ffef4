// SPDX-License-Identifier: Apache-2.0 OR MIT
// Figures as text. The same rules as the model's and the terminal report's.
import type { Exposure, Finding, Nanos } from "./evaluation";

const NBSP = "\u00a0";

/** A time in three significant figures, in the largest unit that keeps them before the point. */
export function time(nanos: Nanos): string {
  const value = Math.abs(nanos);
  const units: [number, number, string][] = [
    [1e3, 1, "ns"],
    [1e6, 1e3, "µs"],
    [1e9, 1e6, "ms"],
    [120e9, 1e9, "s"],
    [7200e9, 60e9, "min"],
    [Number.POSITIVE_INFINITY, 3600e9, "h"],
  ];
  for (const [below, divisor, unit] of units) {
    if (value < below) return `${nanos < 0 ? "−" : ""}${three(value / divisor)}${NBSP}${unit}`;
  }
  return "–";
}

/** Up to three significant figures, without zeros at the end of a fraction. */
function three(value: number): string {
  if (Number.isInteger(value) && value < 1000) return String(value);
  const decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const text = value.toFixed(decimals);
  return decimals > 0 ? text.replace(/\.?0+$/, "") : text;
}

/** A time, or a dash where there is none. */
export function timeOrDash(nanos: Nanos | null | undefined): string {
  return nanos === null || nanos === undefined ? "–" : time(nanos);
}

/** A count with every digit, its thousands apart. */
export function grouped(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, NBSP);
}

/** A count with its thousands apart, or in three figures where that would be wide. */
export function count(value: number): string {
  if (value < 1e6) return grouped(value);
  for (const [divisor, unit] of [
    [1e6, "M"],
    [1e9, "G"],
    [1e12, "T"],
  ] as const) {
    const scaled = value / divisor;
    if (scaled < 999.5 || unit === "T") return `${scaled.toPrecision(3)}${NBSP}${unit}`;
  }
  return grouped(value);
}

/** A quantile as the field writes it: `p50`, `p99.9`. */
export function quantileName(quantile: number): string {
  return `p${(quantile * 100).toFixed(6).replace(/\.?0+$/, "")}`;
}

/** A ratio or factor. */
export function ratio(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return value >= 100
    ? value.toFixed(0)
    : value >= 10
      ? value.toFixed(1)
      : value.toFixed(value >= 0.1 ? 2 : 3);
}

/** A part of a whole as a percentage with as many figures as it needs. */
export function percent(part: number): string {
  if (part === 0) return `0${NBSP}%`;
  const value = part * 100;
  const text =
    value >= 99.995
      ? "100"
      : value >= 0.01
        ? Number(value.toPrecision(3)).toString()
        : value.toExponential(1);
  return `${text}${NBSP}%`;
}

/** A small chance as people can weigh it: one in so many, never smaller than it is. */
export function chance(probability: number): string {
  if (!(probability > 0)) return "0";
  if (probability >= 0.1) return `${(probability * 100).toFixed(0)}${NBSP}%`;
  const inverse = Math.min(1 / probability, 1e18);
  const scale = 10 ** Math.max(0, Math.floor(Math.log10(inverse)) - 1);
  return `1${NBSP}in${NBSP}${count(Math.floor(inverse / scale) * scale)}`;
}

/** A size in the binary units of the kernel. */
export function bytes(value: number): string {
  for (const [unit, size] of [
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ] as const) {
    if (value >= size) return `${three(value / size)}${NBSP}${unit}`;
  }
  return `${value}${NBSP}B`;
}

/** The CPUs of a list of the kernel as a sentence names them: no CPU, CPU 3, CPUs 2-3. */
export function namedCpus(list: string): string {
  if (list === "") {
    return "no CPU";
  }
  return /^\d+$/.test(list) ? `CPU ${list}` : `CPUs ${list}`;
}

/** `1 run`, `3 runs`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${grouped(value)}${NBSP}${value === 1 ? one : many}`;
}

/** What a figure rests on, in words. */
export function exposure(of: Exposure): string {
  const missed = of.missed > 0 ? `, ${plural(of.missed, "period")} missed` : "";
  return `${plural(of.samples, "sample")} in ${time(of.duration)}, ${plural(of.runs, "run")}, ${plural(of.cpus, "CPU")}${missed}`;
}

/** A moment, in UTC, to the second or, with `milliseconds`, finer. */
export function moment(milliseconds: number, fine = false): string {
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return "–";
  const text = date.toISOString().replace("T", " ");
  return `${fine ? text.slice(0, -1) : text.slice(0, 19)}${NBSP}UTC`;
}

/** A sentence of the document, its numbers kept on one line with their units. */
export function prose(sentence: string): string {
  return sentence.replace(/(\d) (?=(?:ns|µs|ms|s|min|h|%)(?!\p{L}))/gu, `$1${NBSP}`);
}

/** A command line that a shell reads back as the same words. */
export function shell(words: readonly string[]): string {
  return words
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(" ");
}

/** A finding in one line, for a tooltip. */
export function finding(of: Finding): string {
  const values = [of.expected && `expected ${of.expected}`, of.found && `found ${of.found}`].filter(Boolean);
  return `${of.location}: ${of.what}${values.length > 0 ? ` (${values.join(", ")})` : ""}`;
}

/** The seed with all its digits: a double holds only 53 bits of it. In JSON text a quotation mark
 * inside a string is escaped, so this matches no string. */
export function exactSeed(document: string): string | null {
  return /"seed":\s*(\d+)/.exec(document)?.[1] ?? null;
}
