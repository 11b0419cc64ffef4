// SPDX-License-Identifier: Apache-2.0 OR MIT
// The latency chart: uPlot with a deadline, maxima, zoom, a reading line and keys.
import uPlot from "uplot";
import { type AxisKind, type Distribution, type Range, survival } from "./distribution";
import { element } from "./dom";
import { Drawing, FONT } from "./drawing";
import { count, grouped, percent, time } from "./figures";
import { binAt, logMarks, type Plot, plot, type View, wideEnough, zoomed } from "./plot";
import { colour, curveColour, curveDash } from "./theme";

/** The unit of the time axis. */
export type Unit = "us" | "ms";

export type ChartSettings = {
  curves: { label: string; distribution: Distribution; max_text: string }[];
  /** Labels of curves that are not drawn. */
  hidden: ReadonlySet<string>;
  view: View;
  kind: AxisKind;
  unit: Unit;
  deadline: number | null;
  deadlineLabel: string;
  range: Range | null;
  height: number;
  /** Label of the time axis. */
  quantity: string;
  /** Description for screen readers. */
  label: string;
  /** Called with the selected range; null for all. */
  onZoom: (range: Range | null) => void;
};

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function inUnit(nanos: number, unit: Unit): string {
  const value = nanos / (unit === "us" ? 1e3 : 1e6);
  if (value === 0) return "0";
  if (value >= 1e3 && value < 1e7) return grouped(value);
  return String(Number(value.toPrecision(4)));
}

function share(value: number): string {
  if (value > 0.5) return "1";
  const power = Math.round(Math.log10(value));
  const digits = [...String(-power)].map((digit) => SUPERSCRIPTS[Number(digit)]);
  return `10⁻${digits.join("")}`;
}

/** A power of ten as short as an axis needs it. */
function decade(value: number): string {
  const power = Math.round(Math.log10(value));
  if (power < 5) return grouped(value);
  return `${10 ** (power % 3)}\u00a0${["", "k", "M", "G", "T", "P"][Math.floor(power / 3)] ?? ""}`;
}

/** One chart in an element of its own. */
export class Chart extends Drawing {
  private plot: Plot | null = null;
  private settings: ChartSettings;

  constructor(settings: ChartSettings) {
    super("chart");
    this.settings = settings;
  }

  /** Draws again with other settings. */
  update(settings: ChartSettings): void {
    this.settings = settings;
    this.name(settings.label);
    this.draw();
  }

  override draw(): void {
    const width = this.cleared();
    const { curves, view, kind, deadline, range } = this.settings;
    this.plot = plot(
      curves.map((curve) => curve.distribution),
      view,
      kind,
      deadline,
      range,
    );
    this.element.dataset["from"] = String(this.plot?.range[0] ?? "");
    this.element.dataset["to"] = String(this.plot?.range[1] ?? "");
    this.element.classList.toggle("without", this.plot === null);
    if (this.plot === null) {
      this.area.append(element("p", { class: "nothing" }, "No sample was taken here."));
      return;
    }
    if (width === null) return;
    const data = [this.plot.edges, ...this.plot.values] as uPlot.AlignedData;
    this.uplot = new uPlot(this.options(this.plot, width), data, this.area);
  }

  protected override get height(): number | null {
    return this.plot === null ? null : this.settings.height;
  }

  protected override showAll(): void {
    this.settings.onZoom(null);
  }

  private options(of: Plot, width: number): uPlot.Options {
    const { curves, hidden, view, kind, unit, height } = this.settings;
    const [from, to] = of.range;
    const [low, high] = of.valueRange;
    const stepped = uPlot.paths.stepped?.({ align: 1 });
    const many = curves.length > 12;
    const axis = { font: FONT, stroke: () => colour("muted"), labelFont: FONT, labelSize: 18, labelGap: 2 };
    const lines = { stroke: () => colour("grid"), width: 1 };
    const timeUnit = unit === "us" ? "µs" : "ms";
    const narrow = width < 520;
    return {
      width,
      height,
      padding: [18, 14, 0, 0],
      legend: { show: false },
      cursor: this.cursor(),
      scales: {
        x: { time: false, distr: kind === "log" ? 3 : 1, range: () => [from, to] },
        y: { distr: 3, range: () => [low, high] },
      },
      axes: [
        {
          ...axis,
          size: 30,
          label: `${this.settings.quantity} (${timeUnit})`,
          grid: lines,
          ticks: { ...lines, size: 4 },
          ...(kind === "log"
            ? { splits: () => logMarks(of.range), filter: (_: uPlot, marks: number[]) => marks }
            : { space: 60 }),
          values: (_, marks) =>
            thinned(marks, narrow && kind === "log").map((mark) => (mark === null ? "" : inUnit(mark, unit))),
        },
        {
          ...axis,
          size: 46,
          label:
            view === "histogram"
              ? `samples per ${binWords(of.edges, kind)}`
              : "share of samples later than this",
          grid: lines,
          ticks: { ...lines, size: 4 },
          splits: () => decades(low, high),
          filter: (_, marks) => marks,
          values: (_, marks) => marks.map((mark) => (view === "histogram" ? decade(mark) : share(mark))),
        },
      ],
      series: [
        {},
        ...curves.map((curve, index) => ({
          label: curve.label,
          show: !hidden.has(curve.label),
          stroke: () => curveColour(index),
          dash: curveDash(index),
          width: many ? 1 : 1.75,
          ...(stepped ? { paths: stepped } : {}),
          points: { show: false },
        })),
      ],
      hooks: {
        draw: [(u) => this.drawMarks(u)],
        setCursor: [(u) => this.read(u)],
        setSelect: [
          (u) => {
            const chosen = this.chosen(u);
            if (chosen && wideEnough(chosen)) this.settings.onZoom(chosen);
          },
        ],
      },
    };
  }

  /** The deadline as a line, and a mark at the maximum of each curve. */
  private drawMarks(u: uPlot): void {
    const { ctx, bbox } = u;
    const scale = window.devicePixelRatio;
    const { deadline, deadlineLabel, curves, hidden } = this.settings;
    ctx.save();
    ctx.font = FONT.replace("11px", `${11 * scale}px`);
    ctx.textBaseline = "bottom";
    const [from, to] = this.plot?.range ?? [0, 0];
    if (deadline !== null && deadline >= from && deadline <= to) {
      const x = Math.round(u.valToPos(deadline, "x", true));
      ctx.strokeStyle = ctx.fillStyle = colour("deadline");
      ctx.lineWidth = 1.5 * scale;
      ctx.setLineDash([5 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      const text = deadlineLabel;
      const space = bbox.left + bbox.width - x;
      ctx.textAlign =
        space < ctx.measureText(text).width / 2 ? "right" : x - bbox.left < 60 * scale ? "left" : "center";
      ctx.fillText(text, ctx.textAlign === "right" ? bbox.left + bbox.width : x, bbox.top - 3 * scale);
    }
    const shown = curves.filter((curve) => !hidden.has(curve.label)).length;
    curves.forEach((curve, index) => {
      const max = curve.distribution.max;
      if (hidden.has(curve.label) || max === null || max === undefined || max < from || max > to) return;
      const x = u.valToPos(max, "x", true);
      const y = bbox.top + bbox.height;
      ctx.fillStyle = curveColour(index);
      ctx.beginPath();
      ctx.moveTo(x, y - 1 * scale);
      ctx.lineTo(x - 4 * scale, y - 9 * scale);
      ctx.lineTo(x + 4 * scale, y - 9 * scale);
      ctx.fill();
      // Labelled only where there is space, so that paper without colours can be read.
      if (shown > 6 || bbox.width < 420 * scale) return;
      ctx.textAlign = x > bbox.left + bbox.width * 0.8 ? "right" : "left";
      const side = ctx.textAlign === "right" ? -6 : 6;
      const text = `${curve.label} ${curve.max_text}`;
      const height = y - (2 + (index % 6) * 13) * scale;
      // A rim in the colour of the paper keeps the name apart from curves behind it.
      ctx.strokeStyle = colour("surface");
      ctx.lineWidth = 4 * scale;
      ctx.lineJoin = "round";
      ctx.strokeText(text, x + side * scale, height);
      ctx.fillText(text, x + side * scale, height);
    });
    ctx.restore();
  }

  /** Shows the values at the reading line. */
  private read(u: uPlot): void {
    const left = u.cursor.left ?? -1;
    const of = this.plot;
    const at = of && left >= 0 ? binAt(of.edges, u.posToVal(left, "x")) : -1;
    if (of === null || at < 0) {
      this.hideReadout();
      return;
    }
    const { curves, hidden } = this.settings;
    const from = of.edges[at] ?? 0;
    const to = of.edges[at + 1] ?? from;
    const rows = curves
      .map((curve, index) => ({ curve, index, bin: of.values[index]?.[at] ?? 0 }))
      .filter(({ curve }) => !hidden.has(curve.label))
      .slice(0, 12)
      .map(({ curve, index, bin }) => {
        const samples = this.settings.view === "histogram" ? [`${count(bin < 1 ? 0 : bin)} samples`] : [];
        const later = survival(curve.distribution, [from])[0] ?? 0;
        return element(
          "div",
          {},
          element("i", { class: "swatch", style: `background:${curveColour(index)}` }),
          `${curve.label}: ${[...samples, `${percent(later)} later`].join(", ")}`,
        );
      });
    this.show(u, `${time(from)} – ${time(to)}`, rows);
  }

  override zoom(factor: number, centre?: number): void {
    const of = this.plot;
    if (of === null) return;
    const { kind } = this.settings;
    const [from, to] = of.range;
    const middle = centre ?? (kind === "log" ? Math.sqrt(from * to) : (from + to) / 2);
    const range = zoomed(kind, of.range, factor, middle);
    if (wideEnough(range) && range[1] <= 1e13) this.settings.onZoom(range);
  }
}

/** On a narrow chart only decades are named. */
function thinned(marks: number[], narrow: boolean): (number | null)[] {
  return narrow
    ? marks.map((mark) => (Number.isInteger(Math.log10(mark)) || marks.length < 5 ? mark : null))
    : marks;
}

/** The powers of ten in a range; where their names would touch, every second or third, 1 among them. */
function decades(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const step = Math.ceil((last - first + 1) / 8);
  const marks: number[] = [];
  for (let power = first; power <= last; power++) if (power % step === 0) marks.push(10 ** power);
  return marks;
}

function binWords(edges: readonly number[], kind: AxisKind): string {
  const [first = 0, second = 0] = edges;
  return kind === "linear"
    ? time(second - first)
    : `bin of ${Number(((second / first - 1) * 100).toPrecision(2))} %`;
}
