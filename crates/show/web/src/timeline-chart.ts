// SPDX-License-Identifier: Apache-2.0 OR MIT
// The worst latency of each slot of time, over the blocks that were made meanwhile.
import uPlot from "uplot";
import { element } from "./dom";
import { Drawing, FONT } from "./drawing";
import type { Trace } from "./elements";
import { time } from "./figures";
import { logMarks } from "./plot";
import { colour, curveColour } from "./theme";

/** A stretch of time in seconds from the start of the round. */
export type Stretch = { from: number; to: number };

export type TimelineSettings = {
  trace: Trace;
  kind: "log" | "linear";
  /** Lowest and highest latency of the axis in ns, so that charts can be compared. */
  values: readonly [number, number];
  /** The stretch of time that is shown, in seconds. */
  range: Stretch;
  height: number;
  /** Whether the axis of time is named under it; of several charts under each other only the last. */
  named: boolean;
  /** Description for screen readers. */
  label: string;
  onZoom: (range: Stretch | null) => void;
};

/** Height of the lane of windows at the top, px. */
const LANE = 5;

/** One chart in an element of its own. */
export class TimelineChart extends Drawing {
  private settings: TimelineSettings | null = null;

  constructor() {
    super("chart timeline");
  }

  /** Draws again with other settings. */
  update(settings: TimelineSettings): void {
    this.settings = settings;
    const { trace, range, label } = settings;
    const count = new Set(trace.blocks.map((block) => block.sequence)).size;
    this.name(`${label}: ${count} blocks`);
    this.element.dataset["from"] = String(range.from);
    this.element.dataset["to"] = String(range.to);
    this.draw();
  }

  override draw(): void {
    const width = this.cleared();
    if (this.settings === null || width === null) return;
    const { worst, slot } = this.settings.trace;
    const data = [worst.map((_, index) => index * slot), worst] as uPlot.AlignedData;
    this.uplot = new uPlot(this.options(this.settings, width), data, this.area);
  }

  protected override get height(): number | null {
    return this.settings?.height ?? null;
  }

  protected override showAll(): void {
    this.settings?.onZoom(null);
  }

  private options(settings: TimelineSettings, width: number): uPlot.Options {
    const { kind, values, range, height, named } = settings;
    const axis = { font: FONT, stroke: () => colour("muted"), labelFont: FONT, labelSize: 16, labelGap: 0 };
    const lines = { stroke: () => colour("grid"), width: 1 };
    const [low, high] = values;
    return {
      width,
      height,
      padding: [LANE + 5, 14, 0, 0],
      legend: { show: false },
      cursor: this.cursor(),
      scales: {
        x: { time: false, range: () => [range.from, range.to] },
        y: { distr: kind === "log" ? 3 : 1, range: () => [low, high] },
      },
      axes: [
        {
          ...axis,
          size: 24,
          ...(named ? { label: "time since the round began, host’s clock (s)" } : {}),
          grid: lines,
          ticks: { ...lines, size: 4 },
          space: 60,
          values: (_, marks) => marks.map((mark) => String(Number(mark.toPrecision(6)))),
        },
        {
          ...axis,
          size: 62,
          grid: lines,
          ticks: { ...lines, size: 4 },
          ...(kind === "log"
            ? { splits: () => latencyMarks(values, height), filter: (_: uPlot, marks: number[]) => marks }
            : { space: 28 }),
          values: (_, marks) => marks.map((mark) => (mark === 0 ? "0" : time(mark))),
        },
      ],
      // Drawn here: a slot is as wide as it lasted, and one without a sample stays empty.
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        drawClear: [(u) => this.drawBack(u)],
        draw: [(u) => this.drawSlots(u)],
        setCursor: [(u) => this.read(u)],
        setSelect: [
          (u) => {
            const chosen = this.chosen(u);
            if (chosen) this.ask({ from: chosen[0], to: chosen[1] });
          },
        ],
      },
    };
  }

  /** Blocks and control windows, under the grid; the windows again as lanes on top. */
  private drawBack(u: uPlot): void {
    if (this.settings === null) return;
    const { trace } = this.settings;
    const { ctx, bbox } = u;
    const scale = window.devicePixelRatio;
    ctx.save();
    const fill = (of: Stretch, name: string, top: number, height: number) => {
      const left = Math.max(u.valToPos(of.from, "x", true), bbox.left);
      const right = Math.min(u.valToPos(of.to, "x", true), bbox.left + bbox.width);
      if (right < bbox.left || left > bbox.left + bbox.width) return;
      ctx.fillStyle = colour(name);
      ctx.fillRect(left, top, Math.max(right - left, scale), height);
    };
    for (const one of trace.windows) if (one.block == null) fill(one, "control-back", bbox.top, bbox.height);
    for (const block of trace.blocks) {
      // The uncertainty of the clocks is shaded more lightly on both sides.
      const { from, to } = block;
      const wide = { from: from - trace.uncertainty, to: to + trace.uncertainty };
      if (trace.uncertainty > 0) fill(wide, "block-edge", bbox.top, bbox.height);
      fill(block, "block-back", bbox.top, bbox.height);
    }
    for (const one of trace.windows) {
      const name = one.block == null ? "control-line" : "block-line";
      fill(one, name, bbox.top - LANE * scale, (LANE - 1.5) * scale);
    }
    ctx.restore();
  }

  /** A bar for each slot; where several fall on one pixel, the highest. */
  private drawSlots(u: uPlot): void {
    if (this.settings === null) return;
    const { trace, values } = this.settings;
    const { ctx, bbox } = u;
    const bottom = bbox.top + bbox.height;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = curveColour(trace.curve);
    let column = { left: 0, right: 0, worst: 0 };
    const flush = () => {
      if (column.worst <= 0) return;
      const top = u.valToPos(Math.max(column.worst, values[0]), "y", true);
      ctx.fillRect(column.left, top, Math.max(column.right - column.left, 1), Math.max(bottom - top, 1));
    };
    for (const [index, worst] of trace.worst.entries()) {
      if (worst === null) continue;
      const at = index * trace.slot;
      const left = Math.round(u.valToPos(at, "x", true));
      const right = Math.round(u.valToPos(at + trace.slot, "x", true));
      if (left === column.left && column.worst > 0) {
        column.worst = Math.max(column.worst, worst);
        continue;
      }
      flush();
      column = { left, right: right - left > 4 ? right - 1 : right, worst };
    }
    flush();
    ctx.restore();
  }

  /** Shows the values at the reading line. */
  private read(u: uPlot): void {
    const left = u.cursor.left ?? -1;
    if (this.settings === null || left < 0) {
      this.hideReadout();
      return;
    }
    const { trace } = this.settings;
    const at = u.posToVal(left, "x");
    const found = trace.worst[Math.floor(at / trace.slot)];
    const block = trace.blocks.find((one) => one.from <= at && at < one.to);
    const within = trace.windows.find((one) => one.from <= at && at < one.to);
    const lines = [
      found != null
        ? `worst of this slot ${time(found)}`
        : found === null
          ? "no sample ended in this slot"
          : "nothing was measured here",
      block && `in block ${block.sequence} of ${time((block.to - block.from) * 1e9)} on CPU ${block.cpu}`,
      within &&
        `${within.block == null ? "control window" : `window of block ${within.block}`}: worst ${within.worst == null ? "–" : time(within.worst)}`,
    ].filter((line) => line !== undefined);
    this.show(
      u,
      `${at.toFixed(4)} s`,
      lines.map((line) => element("div", {}, line)),
    );
  }

  /** Asks for a stretch, if it is wide enough to show anything. */
  private ask(range: Stretch): void {
    if (this.settings !== null && range.to - range.from > this.settings.trace.slot * 3)
      this.settings.onZoom(range);
  }

  override zoom(factor: number, centre?: number): void {
    if (this.settings === null) return;
    const { from, to } = this.settings.range;
    const middle = centre ?? (from + to) / 2;
    this.ask({ from: middle - (middle - from) * factor, to: middle + (to - middle) * factor });
  }
}

/** Decades of a latency axis, with finer marks where there is space for their names. */
function latencyMarks([low, high]: readonly [number, number], height: number): number[] {
  const marks = logMarks([low, high]);
  const decades = marks.filter((mark) => Number.isInteger(Math.log10(mark)));
  return marks.length > height / 30 && decades.length > 1 ? decades : marks;
}
