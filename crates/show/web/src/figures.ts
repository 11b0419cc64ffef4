// SPDX-License-Identifier: Apache-2.0 OR MIT
// Figures as text, for axes and reading lines. They depend on the position that the reader selects.
const NBSP = "\u00a0";

/** A time in three significant figures, in the largest unit that keeps them before the point. */
export function time(nanos: number): string {
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
