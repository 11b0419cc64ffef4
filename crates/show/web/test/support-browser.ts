// SPDX-License-Identifier: Apache-2.0 OR MIT
// Support of the browser tests: the page in a real browser, from a file, without a network.
import assert from "node:assert/strict";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { pathToFileURL } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";
import type { PageData } from "../src/elements";

const executable = [
  process.env["CHROMIUM"],
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));
/** Why the tests cannot be run here; false where they can. */
export const skip = executable === undefined ? "chromium is not installed" : false;
if (skip && process.env["RAMPART_SKIPPED"]) {
  appendFileSync(process.env["RAMPART_SKIPPED"], "the page not tested in a browser, for want of chromium\n");
}

/** Fills the page as crates/show/present does. */
export function rendered(elements: string, evaluation = EVALUATION): string {
  let page = readFileSync("dist/page.html", "utf8");
  for (const [id, json] of [
    ["elements", elements],
    ["evaluation", evaluation],
  ] as const) {
    const mark = `<script type="application/json" id="${id}"></script>`;
    assert.equal(page.split(mark).length, 2, `the page has one element ${id}`);
    const safe = json
      .trim()
      .replace(/[<>&\u2028\u2029]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
    page = page.replace(mark, () => mark.replace("></", () => `>${safe}</`));
  }
  return page;
}

/** The document in tests that use only elements. */
export const EVALUATION = '{"seed":18046744073709551557,"text":"its own digits"}';

let browser: Browser;
let folder: string;

/** Starts the browser before the tests of a file, and ends it after them. */
export function withBrowser(): void {
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "rampart-page-"));
    browser = await chromium.launch({
      executablePath: executable ?? "",
      args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    });
  });

  after(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });
}

/** Opens a separate page. */
export const newPage = () => browser.newPage();

const fixture = (name: string) => readFileSync(`fixtures/${name}.json`, "utf8");

/** The elements of a fixture, to be changed. */
export const read = (name: string) => JSON.parse(fixture(name)) as PageData;

/** Directory for files. */
export const inFolder = (name: string) => join(folder, name);

type Options = { dark?: boolean; width?: number; elements?: PageData };

/** Opens a fixture, does something, and fails on any error, dialog or request. */
export async function open(
  name: string,
  act: (page: Page) => Promise<void>,
  options: Options = {},
): Promise<void> {
  const file = join(folder, `${name}.html`);
  writeFileSync(file, rendered(options.elements ? JSON.stringify(options.elements) : fixture(name)));
  const context = await browser.newContext({
    viewport: { width: options.width ?? 1280, height: 800 },
    colorScheme: options.dark ? "dark" : "light",
    offline: true,
  });
  // A selector that matches nothing fails at once instead of after half a minute.
  context.setDefaultTimeout(5000);
  const page = await context.newPage();
  const wrong: string[] = [];
  page.on("console", (message) => {
    const ours = message.text().includes("willReadFrequently"); // These tests read canvases, the page does not.
    if (!ours && ["error", "warning"].includes(message.type())) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("dialog", (dialog) => {
    wrong.push(`dialog ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) wrong.push(`request ${request.url()}`);
  });
  try {
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector("main h1");
    await settled(page);
    await act(page);
    assert.deepEqual(wrong, []);
  } finally {
    await context.close();
  }
}

/** Waits two frames, after which everything is drawn. */
export const settled = (page: Page) =>
  page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null)))),
  );

/** By how much the page is wider than its window. */
export const overflow = (page: Page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Returns texts whose contrast to their background is below WCAG AA. */
export const unreadable = (page: Page) =>
  page.evaluate(() => {
    const parse = (colour: string) => (colour.match(/[\d.]+/g) ?? []).map(Number);
    const luminance = (colour: number[]) => {
      const [r = 0, g = 0, b = 0] = colour.slice(0, 3).map((part) => {
        const value = part / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node: Element | null): number[] => {
      for (let at = node; at !== null; at = at.parentElement) {
        const colour = parse(getComputedStyle(at).backgroundColor);
        if (colour.length === 3 || (colour[3] ?? 0) > 0.99) return colour;
      }
      return [255, 255, 255];
    };
    const bad = new Set<string>();
    for (const node of document.querySelectorAll<HTMLElement>("body *")) {
      const own = [...node.childNodes].some(
        (child) => child.nodeType === 3 && (child.textContent ?? "").trim() !== "",
      );
      if (!own || !node.checkVisibility() || node.closest("script, style, .unseen")) continue;
      const [a, b] = [luminance(parse(getComputedStyle(node).color)), luminance(behind(node))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5)
        bad.add(`${node.tagName}.${node.className} ${contrast.toFixed(2)} ${node.innerText.slice(0, 30)}`);
    }
    return [...bad];
  });
