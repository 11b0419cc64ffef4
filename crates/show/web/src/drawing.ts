// SPDX-License-Identifier: Apache-2.0 OR MIT
// Common parts of charts: element, reading line with values, zoom, keys.
import type uPlot from "uplot";
import { element } from "./dom";

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** Narrower than this nothing can be read, px. */
const NARROWEST = 50;
/** Step of the reading line by an arrow key, px. */
const STEP = 6;
const WIDE_STEP = 40;

/** A chart in an element of its own. */
export abstract class Drawing {
  readonly element: HTMLElement;
  protected readonly area = element("div", { class: "area" });
  protected uplot: uPlot | null = null;
  private readonly readout = element("div", { class: "readout", role: "status", "aria-live": "polite" });

  constructor(name: string) {
    this.element = element(
      "div",
      {
        class: name,
        tabindex: 0,
        role: "group",
        "aria-roledescription": "chart",
        onkeydown: (event) => this.onKey(event as KeyboardEvent),
      },
      this.area,
      this.readout,
    );
    new ResizeObserver(() => this.resize()).observe(this.area);
  }

  /** Draws again because something changed: settings, colours, widths. */
  abstract draw(): void;

  /** Zooms by a factor about a position on the horizontal axis, by default the middle. */
  abstract zoom(factor: number, centre?: number): void;

  /** Shows all again. */
  protected abstract showAll(): void;

  /** Its height in px; null while there is nothing to draw. */
  protected abstract get height(): number | null;

  /** Describes the chart and its keys to screen readers. */
  protected name(label: string): void {
    this.element.setAttribute(
      "aria-label",
      `${label}. Left and right move the reading line, plus and minus zoom, 0 shows all.`,
    );
  }

  /** Removes the drawing; returns the width of the next one, or null if there is no space. */
  protected cleared(): number | null {
    this.uplot?.destroy();
    this.uplot = null;
    this.hideReadout();
    this.area.replaceChildren();
    const width = this.area.clientWidth;
    return width < NARROWEST ? null : width;
  }

  private resize(): void {
    const width = this.area.clientWidth;
    const { height } = this;
    if (height === null || width < NARROWEST) return;
    if (this.uplot === null) this.draw();
    else if (Math.abs(this.uplot.width - width) > 1) this.uplot.setSize({ width, height });
  }

  /** A reading line that follows the mouse; a drag chooses a stretch, a double click shows all. */
  protected cursor(): uPlot.Cursor {
    return {
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: false },
      bind: {
        dblclick: () => () => {
          this.showAll();
          return null;
        },
      },
    };
  }

  /** The stretch that a drag has chosen, which is then no longer marked; null if it was no drag. */
  protected chosen(u: uPlot): [number, number] | null {
    if (u.select.width < 4) return null;
    const from = u.posToVal(u.select.left, "x");
    const to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    return [from, to];
  }

  /** Shows the values at the reading line, on the side where they hide nothing. */
  protected show(u: uPlot, title: string, lines: HTMLElement[]): void {
    this.readout.replaceChildren(element("b", {}, title), ...lines);
    this.readout.classList.add("shown");
    this.readout.classList.toggle("left", (u.cursor.left ?? 0) > u.over.clientWidth / 2);
  }

  protected hideReadout(): void {
    this.readout.classList.remove("shown");
    this.readout.replaceChildren();
  }

  private onKey(event: KeyboardEvent): void {
    const u = this.uplot;
    if (u === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const left = u.cursor.left !== undefined && u.cursor.left >= 0 ? u.cursor.left : u.over.clientWidth / 2;
    const move = (by: number) => {
      const to = Math.min(Math.max(left + by, 0), u.over.clientWidth - 1);
      u.setCursor({ left: to, top: u.over.clientHeight / 2 });
    };
    const step = event.shiftKey ? WIDE_STEP : STEP;
    switch (event.key) {
      case "ArrowLeft":
        move(-step);
        break;
      case "ArrowRight":
        move(step);
        break;
      case "+":
      case "=":
        this.zoom(0.5, u.posToVal(left, "x"));
        break;
      case "-":
        this.zoom(2, u.posToVal(left, "x"));
        break;
      case "0":
        this.showAll();
        break;
      case "Escape":
        u.setCursor({ left: -10, top: -10 });
        return;
      default:
        return;
    }
    event.preventDefault();
  }
}
