// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page in a real browser.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import type { Page } from "playwright-core";
import {
  EVALUATION,
  inFolder,
  newPage,
  open,
  overflow,
  read,
  rendered,
  settled,
  skip,
  unreadable,
  withBrowser,
} from "./support-browser";

const FIXTURES = ["full", "killed", "single-cpu", "empty", "wide", "transfers", "plan", "cells"];

describe("the page in a browser", { skip }, () => {
  withBrowser();

  /** How many pixels of a chart have about the colour of a curve. */
  const pixels = (page: Page, curve: number, chart = 0) =>
    page.evaluate(
      ([curve, chart]) => {
        const canvas = document.querySelectorAll<HTMLCanvasElement>(".chart canvas")[chart ?? 0];
        const context = canvas?.getContext("2d");
        if (!canvas || !context) return -1;
        const probe = document.createElement("canvas").getContext("2d");
        if (!probe) return -1;
        probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--curve-${curve}`);
        probe.fillRect(0, 0, 1, 1);
        const wanted = probe.getImageData(0, 0, 1, 1).data;
        const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
          const near = [0, 1, 2].every((part) => Math.abs((data[at + part] ?? 0) - (wanted[part] ?? 0)) < 24);
          if (near && (data[at + 3] ?? 0) > 200) found++;
        }
        return found;
      },
      [curve, chart] as const,
    );

  /** Chooses in a switch. */
  const pick = (page: Page, text: string) =>
    page
      .locator(".switches label")
      .filter({ has: page.getByText(text, { exact: true }) })
      .click();

  const range = (page: Page) =>
    page.evaluate(() => {
      const chart = document.querySelector<HTMLElement>(".chart");
      return [Number(chart?.dataset["from"]), Number(chart?.dataset["to"])] as const;
    });

  for (const name of FIXTURES) {
    for (const width of [1280, 400]) {
      test(`${name} fits ${width} px and shows its parts`, async () => {
        await open(
          name,
          async (page) => {
            assert.equal(await overflow(page), 0);
            for (const id of [
              "latency",
              "domains",
              "machine",
              "findings",
              "not-measured",
              "reading",
              "again",
            ]) {
              assert.equal(await page.locator(`section#${id} h2`).count(), 1, id);
            }
          },
          { width, dark: width === 400 },
        );
      });
    }
  }

  for (const name of FIXTURES) {
    test(`${name} begins with an answer and a command, without scrolling`, async () => {
      await open(name, async (page) => {
        const answer = page.locator("header .first-answer");
        assert.match(await answer.locator(".best").innerText(), /\w+ .*[.:]/);
        assert.match(await answer.locator(".command code").innerText(), /^(sudo )?rampart [a-z]+/);
        const box = await answer.boundingBox();
        assert.ok(box && box.y + box.height < 720, JSON.stringify(box));
      });
    });
  }

  test("each curve is drawn, and its maximum is in the legend", async () => {
    await open("full", async (page) => {
      for (const curve of [0, 1, 2]) assert.ok((await pixels(page, curve)) > 100, `curve ${curve}`);
      const texts = await page.locator(".legend button").allInnerTexts();
      assert.equal(texts.length, 3);
      for (const text of texts) assert.match(text, /max\s+[\d.]+\s(µs|ms)/);
    });
  });

  test("a curve is toggled by mouse and by keyboard", async () => {
    await open("full", async (page) => {
      const button = () => page.locator(".legend button").nth(1);
      const drawn = await pixels(page, 1);
      await button().click();
      await settled(page);
      assert.equal(await button().getAttribute("aria-pressed"), "false");
      assert.ok((await pixels(page, 1)) < drawn / 10, "the curve is gone");
      assert.ok((await pixels(page, 0)) > 100, "the others stay");
      await page.keyboard.press("Enter");
      await settled(page);
      assert.equal(await button().getAttribute("aria-pressed"), "true");
      assert.ok((await pixels(page, 1)) > drawn / 2, "the curve is back");
      await page.keyboard.press(" ");
      assert.equal(await button().getAttribute("aria-pressed"), "false");
    });
  });

  test("dragging zooms, double-click and the button show all again", async () => {
    await open("full", async (page) => {
      const all = await range(page);
      await page.locator(".chart").scrollIntoViewIfNeeded();
      const box = await page.locator(".chart .u-over").boundingBox();
      assert.ok(box);
      const drag = async () => {
        await page.mouse.move(box.x + box.width * 0.3, box.y + box.height / 2);
        await page.mouse.down();
        await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2, { steps: 5 });
        await page.mouse.up();
        await settled(page);
      };
      await drag();
      const near = await range(page);
      assert.ok(near[0] > all[0] * 1.5 && near[1] < all[1] / 1.5, `${near} within ${all}`);
      await page.mouse.dblclick(box.x + box.width / 2, box.y + box.height / 2);
      await settled(page);
      assert.deepEqual(await range(page), all);
      await drag();
      await page.getByRole("button", { name: "Show all" }).click();
      assert.deepEqual(await range(page), all);
      await page.getByRole("button", { name: "Zoom in" }).click();
      assert.ok((await range(page))[0] > all[0]);
    });
  });

  test("the reading line shows values, for mouse and keys", async () => {
    await open("full", async (page) => {
      await page.locator(".chart").scrollIntoViewIfNeeded();
      const box = await page.locator(".chart .u-over").boundingBox();
      assert.ok(box);
      await page.mouse.move(box.x + box.width * 0.15, box.y + box.height / 2);
      await page.waitForSelector(".readout.shown");
      assert.match(
        await page.locator(".readout").innerText(),
        /µs – [\d.]+\sµs[\s\S]*host: [\d\s]+ samples, [\d.]+\s% later/,
      );
      await page.mouse.move(5, 5);
      await page.waitForSelector(".readout:not(.shown)", { state: "attached" });
      await page.locator(".chart").focus();
      await page.keyboard.press("ArrowRight");
      await page.waitForSelector(".readout.shown");
      const first = await page.locator(".readout b").innerText();
      for (let press = 0; press < 6; press++) await page.keyboard.press("ArrowRight");
      assert.notEqual(await page.locator(".readout b").innerText(), first);
      const all = await range(page);
      await page.keyboard.press("+");
      const near = await range(page);
      assert.ok(near[0] > all[0] && near[1] < all[1]);
      assert.ok(
        await page.evaluate(() => document.activeElement?.classList.contains("chart")),
        "focus stays",
      );
      await page.keyboard.press("0");
      assert.deepEqual(await range(page), all);
    });
  });

  test("every switch works, alone and after the others", async () => {
    for (const name of ["full", "killed", "wide"]) {
      await open(name, async (page) => {
        const count = await page.locator(".switches label").count();
        assert.ok(count > 6);
        for (let index = 0; index < count + 8; index++) {
          const labels = page.locator(".switches label");
          const label = labels.nth((index * 5) % (await labels.count()));
          const text = await label.innerText();
          await label.click();
          await settled(page);
          assert.ok(
            await page.evaluate(
              (text) =>
                [...document.querySelectorAll("label")].some(
                  (one) => one.innerText === text && one.querySelector("input")?.checked,
                ),
              text,
            ),
            text,
          );
          assert.equal(await overflow(page), 0, text);
        }
      });
    }
  });

  test("all conditions are side by side, on the same axes", async () => {
    await open("full", async (page) => {
      await pick(page, "all side by side");
      await settled(page);
      assert.equal(await page.locator(".charts canvas").count(), 3);
      const ranges = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLElement>(".chart")].map(
          (chart) => `${chart.dataset["from"]} ${chart.dataset["to"]}`,
        ),
      );
      assert.equal(new Set(ranges).size, 1);
      for (const chart of [0, 1, 2]) assert.ok((await pixels(page, 0, chart)) > 50, `chart ${chart}`);
    });
  });

  test("the keyboard reaches every control, and one sees where it is", async () => {
    await open("full", async (page) => {
      const expected = await page.evaluate(() => {
        const all = [
          ...document.querySelectorAll<HTMLElement>("a[href], button, input, summary, [tabindex='0']"),
        ];
        const shown = all.filter((one) => one.checkVisibility());
        // Of a group of radio buttons the keyboard reaches the chosen one, and the arrows the others.
        const stops = shown.filter((one) => !(one instanceof HTMLInputElement) || one.checked);
        stops.forEach((one, index) => {
          one.dataset["stop"] = String(index);
        });
        return stops.length;
      });
      const reached = new Set<string>();
      for (let press = 0; press < expected + 5; press++) {
        await page.keyboard.press("Tab");
        const found = await page.evaluate(() => {
          const active = document.activeElement as HTMLElement;
          const shown = active instanceof HTMLInputElement ? (active.nextElementSibling ?? active) : active;
          const style = getComputedStyle(shown);
          const visible = style.outlineStyle !== "none" && Number.parseFloat(style.outlineWidth) >= 2;
          return { stop: active.dataset["stop"] ?? "", visible, text: active.outerHTML.slice(0, 120) };
        });
        if (found.stop === "") continue;
        reached.add(found.stop);
        assert.ok(found.visible, `no visible focus: ${found.text}`);
      }
      assert.equal(reached.size, expected);
      await page.locator(".switches input:checked").first().focus();
      await page.keyboard.press("ArrowRight");
      assert.equal(
        await page.evaluate(() => (document.activeElement as HTMLInputElement).value),
        "cpu@others",
      );
    });
  });

  test("an answer links to its evidence, a row opens its data", async () => {
    await open("full", async (page) => {
      await page.locator(".comparison .badge.fails").first().click();
      assert.match(await page.locator("tr:target").innerText(), /host[\s\S]*fails/);
      const opener = page.locator(".opener").first();
      await opener.focus();
      await page.keyboard.press("Enter");
      assert.equal(await opener.getAttribute("aria-expanded"), "true");
      assert.match(
        await page.locator(".details:not([hidden])").innerText(),
        /placement read back[\s\S]*histograms\/000\.hlog/,
      );
      await opener.click();
      assert.equal(await page.locator(".details:not([hidden])").count(), 0);
    });
  });

  test("light and dark follow the system and the button, and both can be read", async () => {
    for (const dark of [false, true]) {
      await open(
        "full",
        async (page) => {
          const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
          const before = await background();
          assert.deepEqual(await unreadable(page), []);
          const curve = await pixels(page, 0);
          await page.locator("nav .theme").click();
          await settled(page);
          assert.notEqual(await background(), before);
          assert.deepEqual(await unreadable(page), []);
          const after = await pixels(page, 0);
          assert.ok(curve > 100 && after > 100, "the curve took the other theme's colour");
        },
        { dark },
      );
    }
  });

  test("paper is light, shows all conditions, and the page is as before afterwards", async () => {
    await open(
      "full",
      async (page) => {
        const pdf = await page.pdf({ preferCSSPageSize: true });
        assert.equal(pdf.subarray(0, 5).toString(), "%PDF-");
        assert.ok(pdf.length > 30_000);
        await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
        await settled(page);
        assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), "light");
        assert.equal(await page.locator(".charts canvas").count(), 3);
        await page.emulateMedia({ media: "print" });
        assert.equal(await page.locator(".figures tbody").filter({ visible: true }).count(), 3);
        await page.emulateMedia({ media: "screen" });
        await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
        await settled(page);
        assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), undefined);
        assert.equal(await page.locator(".charts canvas").count(), 1);
      },
      { dark: true },
    );
  });

  test("names are text, whatever they look like", async () => {
    await open("wide", async (page) => {
      assert.equal(await page.locator("h1").innerText(), "<img src=x onerror=alert(1)>");
      assert.equal(await page.locator("main img, main script, main b:text-is('\\2028')").count(), 0);
      assert.ok(
        (await page.locator(".answer h3").allInnerTexts()).some((text) =>
          text.includes("<script>alert(1)</script>&amp;"),
        ),
      );
      assert.match(await page.locator("#machine").innerText(), /<\/script><!-- quiet/);
    });
  });

  test("sixty-four CPUs, a thousand million samples and 2 s fit one chart", async () => {
    await open("wide", async (page) => {
      await pick(page, "CPU");
      await settled(page);
      assert.equal(await page.locator(".legend button").count(), 64);
      assert.match(
        await page.locator(".legend button").first().innerText(),
        /max\s+2\ss[\s\S]*[\d.]+\sG samples/,
      );
      assert.ok((await pixels(page, 0)) > 100);
      assert.equal(await overflow(page), 0);
    });
  });

  test("a record without samples is named", async () => {
    await open("wide", async (page) => {
      await pick(page, "io@others");
      await settled(page);
      const texts = await page.locator(".legend button").allInnerTexts();
      assert.match(texts[1] ?? "", /max\s+–[\s\S]*0 samples/);
    });
  });

  test("an incomplete evaluation is named at the top", async () => {
    await open("killed", async (page) => {
      assert.match(await page.locator("header").innerText(), /Killed, or still running: 7 of 27 runs/);
    });
    await open("single-cpu", async (page) => {
      assert.match(await page.locator("header").innerText(), /Emulated machine: microseconds are not real/);
      assert.match(await page.locator("header").innerText(), /Ended early on request: 6 of 10 runs/);
    });
    await open("empty", async (page) => {
      assert.match(await page.locator("#latency").innerText(), /Nothing was measured/);
      assert.match(await page.locator("#not-measured").innerText(), /sudo rampart evaluate/);
    });
    await open("full", async (page) => {
      assert.match(await page.locator("header").innerText(), /1 of 18 records is invalid/);
    });
  });

  test("the document can be saved, with every digit", async () => {
    await open("full", async (page) => {
      const waiting = page.waitForEvent("download");
      await page.getByRole("button", { name: "Save evaluation.json" }).click();
      const path = await (await waiting).path();
      assert.equal(readFileSync(path, "utf8"), EVALUATION);
      assert.match(await page.locator("#again").innerText(), /18046744073709551557/);
    });
  });

  test("elements of another version are refused in words", async () => {
    const file = inFolder("future.html");
    writeFileSync(file, rendered(JSON.stringify({ ...read("empty"), version: 2 })));
    const page = await newPage();
    await page.goto(pathToFileURL(file).href);
    assert.match(await page.locator("main").innerText(), /elements of version 2, expected 1/);
    await page.close();
  });
});
