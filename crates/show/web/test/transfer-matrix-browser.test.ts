// SPDX-License-Identifier: Apache-2.0 OR MIT
// The transfer matrix and its pairs in time, in a real browser.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Page } from "playwright-core";
import { open, overflow, settled, skip, unreadable, withBrowser } from "./support-browser";

describe("who disturbs whom in a browser", { skip }, () => {
  withBrowser();

  const entry = (page: Page, disturbance: string, domain: string) =>
    page.locator(`td[data-disturbance="${disturbance}"][data-domain="${domain}"]`);

  const choose = async (page: Page, disturbance: string, domain: string) => {
    await entry(page, disturbance, domain).locator("button").click();
    await settled(page);
  };

  /** Chooses in a switch of the pair. */
  const pick = (page: Page, text: string) =>
    page
      .locator("#pair label")
      .filter({ has: page.getByText(text, { exact: true }) })
      .click();

  /** Pixels of a timeline that have about a colour of the style sheet. */
  const pixels = (page: Page, name: string, chart = 0) =>
    page.evaluate(
      ([name, chart]) => {
        const canvas = document.querySelectorAll<HTMLCanvasElement>("#pair canvas")[chart];
        const context = canvas?.getContext("2d");
        const probe = document.createElement("canvas").getContext("2d");
        if (!canvas || !context || !probe) return -1;
        probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
        probe.fillRect(0, 0, 1, 1);
        const wanted = probe.getImageData(0, 0, 1, 1).data;
        const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
          const near = [0, 1, 2].every((part) => Math.abs((data[at + part] ?? 0) - (wanted[part] ?? 0)) < 6);
          if (near && (data[at + 3] ?? 0) > 200) found++;
        }
        return found;
      },
      [name, chart] as const,
    );

  const range = (page: Page) =>
    page.evaluate(() => {
      const chart = document.querySelector<HTMLElement>("#pair .chart");
      return [Number(chart?.dataset["from"]), Number(chart?.dataset["to"])] as const;
    });

  test("the matrix shows each pair by sign, word and figure", async () => {
    await open("transfers", async (page) => {
      assert.equal(await page.locator(".transfer").count(), 13 * 4);
      const text = (disturbance: string, domain: string) => entry(page, disturbance, domain).innerText();
      assert.match(await text("block:host", "task"), /✓ holds\s+0\.00\s+−?0\.0\d–0\.0\d/);
      assert.match(await text("block:under:vm", "vm"), /≈ leaks\s+0\.9\d/);
      assert.match(await text("block:task", "task"), /● control\s+0\.9\d/);
      assert.match(await text("cache:host", "container"), /≈ leaks\s+×1\.\d\d/);
      assert.match(await text("cpu:vm", "vm"), /○ own/);
      assert.match(await text("cache:container", "host"), /\? inconclusive/);
      assert.equal(await entry(page, "block:host", "vm").locator("svg.interval").count(), 1);
      assert.match(await page.locator(".transfer-matrix thead").innerText(), /vm\s+emulated/);
    });
  });

  test("choosing a pair shows its blocks over its latencies, with both clocks named", async () => {
    await open("transfers", async (page) => {
      const pair = page.locator("#pair");
      assert.match(await pair.innerText(), /block:host seen from vm/, "a leak is shown first");
      await choose(page, "block:vm", "vm");
      assert.match(await pair.innerText(), /block:vm seen from vm[\s\S]*control/);
      assert.match(
        await pair.innerText(),
        /vm's clock is behind the host's by 31\.5\ss, known within ±184\sµs/,
      );
      assert.match(await pair.innerText(), /τ = 0\.9\d\d, from 0\.9\d\d to 0\.9\d\d \(95\s%\)/);
      assert.equal(await pair.locator("canvas").count(), 1);
      for (const name of ["block-back", "control-back", "block-line", "control-line", "curve-3"])
        assert.ok((await pixels(page, name)) > 200, name);
      await choose(page, "block:task", "host");
      assert.match(await pair.innerText(), /block:task seen from host[\s\S]*read on the same clock/);
      assert.ok((await pixels(page, "curve-0")) > 200);
      assert.equal(await pixels(page, "block-edge"), 0, "one clock has no uncertainty");
      assert.equal(await page.locator(".transfer button[aria-pressed=true]").count(), 1);
    });
  });

  test("the compared windows are beside it", async () => {
    await open("transfers", async (page) => {
      await choose(page, "block:container", "container");
      const dots = page.locator(".windows .dots");
      assert.equal(await dots.nth(0).locator("circle").count(), 20);
      const controls = await dots.nth(1).locator("circle").count();
      assert.ok(controls >= 8);
      const location = (at: number) =>
        dots
          .nth(at)
          .locator(".median")
          .evaluate((line) => Number.parseFloat(line.getAttribute("x1") ?? ""));
      assert.ok((await location(0)) > (await location(1)) + 30, "windows with a block are far worse");
      await choose(page, "block:container", "host");
      assert.ok(Math.abs((await location(0)) - (await location(1))) < 20, "and elsewhere they are not");
    });
  });

  test("time is zoomed by dragging, buttons and keys, for all charts at once", async () => {
    await open("transfers", async (page) => {
      await pick(page, "everyone at that time");
      await settled(page);
      assert.equal(await page.locator("#pair canvas").count(), 4);
      const all = await range(page);
      const box = await page.locator("#pair .u-over").first().boundingBox();
      assert.ok(box && all[0] === 0 && all[1] > 2);
      await page.locator("#pair .chart").first().scrollIntoViewIfNeeded();
      const shown = await page.locator("#pair .u-over").first().boundingBox();
      assert.ok(shown);
      await page.mouse.move(shown.x + shown.width * 0.2, shown.y + 20);
      await page.mouse.down();
      await page.mouse.move(shown.x + shown.width * 0.4, shown.y + 20, { steps: 4 });
      await page.mouse.up();
      await settled(page);
      const near = await range(page);
      assert.ok(near[0] > 0.3 && near[1] < all[1] / 2, `${near} within ${all}`);
      const froms = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLElement>("#pair .chart")].map((one) => one.dataset["from"]),
      );
      assert.equal(new Set(froms).size, 1);
      await page.getByRole("button", { name: "Show the whole round" }).click();
      assert.deepEqual(await range(page), all);
      await page.locator("#pair .chart").first().focus();
      await page.keyboard.press("+");
      assert.ok((await range(page))[1] < all[1]);
      assert.ok(
        await page.evaluate(() => document.activeElement?.classList.contains("timeline")),
        "focus stays",
      );
      await page.keyboard.press("ArrowRight");
      assert.match(
        await page.locator("#pair .readout.shown").innerText(),
        /s\s+(worst of this slot|no sample)/,
      );
      await page.keyboard.press("0");
      assert.deepEqual(await range(page), all);
    });
  });

  test("a load is shown with the quiet round beside it, a broken round with its reason", async () => {
    await open("transfers", async (page) => {
      await choose(page, "cache:host", "container");
      assert.equal(await page.locator("#pair canvas").count(), 2);
      assert.match(
        await page.locator("#pair").innerText(),
        /under the load[\s\S]*quiet[\s\S]*stress-ng --cache/,
      );
      await choose(page, "cache:container", "task");
      assert.match(await page.locator("#pair").innerText(), /the load ended before the round did/);
      await pick(page, "linear");
      await settled(page);
      assert.ok((await pixels(page, "curve-1")) > 200);
    });
  });

  test("one stop of the keyboard, and the arrows reach every entry", async () => {
    await open("transfers", async (page) => {
      assert.equal(await page.locator(".transfer button[tabindex='0']").count(), 1);
      await page.locator(".transfer button[tabindex='0']").focus();
      await page.keyboard.press("ArrowDown");
      await settled(page);
      assert.match(await page.locator("#pair h3").innerText(), /block:task seen from vm/);
      await page.keyboard.press("ArrowLeft");
      await page.keyboard.press("ArrowLeft");
      assert.match(await page.locator("#pair h3").innerText(), /block:task seen from task/);
      for (let press = 0; press < 20; press++) await page.keyboard.press("ArrowDown");
      assert.match(await page.locator("#pair h3").innerText(), /cache:vm seen from task/);
      assert.ok(await page.evaluate(() => document.activeElement?.closest(".transfer") !== null));
      assert.equal(await page.locator(".transfer button[tabindex='0']").count(), 1);
    });
  });

  test("every answer of the comparison leads to its evidence", async () => {
    await open("transfers", async (page) => {
      const row = page.locator(".comparison tbody tr", { hasText: "isolation" });
      await row.getByRole("link", { name: "block:under:vm leaks" }).click();
      await settled(page);
      assert.match(await page.locator("#pair h3").innerText(), /block:under:vm seen from vm/);
      assert.match(await page.locator("td:target").innerText(), /leaks/);
      await row.locator("summary").first().click();
      await row.getByRole("link", { name: "block:task holds" }).first().click();
      await settled(page);
      assert.match(await page.locator("#pair h3").innerText(), /block:task seen from host/);
      const crash = page.locator(".comparison tbody tr", { hasText: "survives" });
      await crash.getByRole("link", { name: "crash:host fails" }).nth(3).click();
      assert.match(await page.locator("tr:target").innerText(), /vm[\s\S]*ended[\s\S]*22\.5\sms before/);
      const targets = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLAnchorElement>("main a[href^='#']")]
          .map((link) => link.hash.slice(1))
          .filter((id) => document.getElementById(id) === null),
      );
      assert.deepEqual(targets, [], "links that lead nowhere");
    });
  });

  test("the crash shows until when each domain measured", async () => {
    await open("transfers", async (page) => {
      assert.equal(await page.locator("#crash svg.life").count(), 4);
      const widths = await page.evaluate(() =>
        [...document.querySelectorAll("#crash svg.life")].map(
          (life) => life.querySelector("rect:not(.rail):not(.unsure)")?.getBoundingClientRect().width ?? 0,
        ),
      );
      assert.ok((widths[3] ?? 0) > (widths[0] ?? 0), widths.join());
      assert.match(await page.locator("#crash").innerText(), /confirmed by\s+the emulator: GUEST_PANICKED/);
    });
  });

  test("a simulated machine is named at the top, its packages folded", async () => {
    await open("transfers", async (page) => {
      const header = page.locator("header");
      assert.match(
        await header.innerText(),
        /Simulated machine[\s\S]*Real here[\s\S]*Not real[\s\S]*QEMU 7\.2/,
      );
      assert.equal(await page.getByText("Emulated machine: its microseconds").count(), 0, "stated once");
      assert.ok(!(await header.getByText("rt-tests").isVisible()));
      await header.locator("summary").first().click();
      assert.ok(await header.getByText("rt-tests").isVisible());
    });
  });

  test("guests show missing settings first, and the worst samples their causes", async () => {
    await open("transfers", async (page) => {
      assert.match(
        await page.locator(".knobs tbody tr").first().innerText(),
        /huge pages\s+✗ missing\s+4\sKiB\s+2\sMiB/,
      );
      assert.match(await page.locator("#guests").innerText(), /CPU 1 is bound to CPU 4 of the host/);
      const causes = page.locator(".causes tbody tr").filter({ visible: true });
      assert.ok((await causes.count()) >= 4);
      assert.match(
        await causes.first().innerText(),
        /thread\sktimers\/2:34 [\d.]+\sms\s+interrupt\slocal_timer:236/,
      );
      assert.equal(await causes.first().locator(".cause-lane rect").count(), 3);
      assert.match(await page.locator("#worst").innerText(), /nothing that the kernel saw/);
    });
    await open("full", async (page) => {
      for (const id of ["transfer-matrix", "crash", "guests"])
        assert.equal(await page.locator(`#${id}`).count(), 0, id);
      assert.equal(await page.locator(".causes").count(), 0);
    });
  });

  test("light, dark, narrow and on paper it is readable", async () => {
    for (const dark of [false, true]) {
      await open(
        "transfers",
        async (page) => {
          assert.deepEqual(await unreadable(page), []);
          const before = await pixels(page, "block-back");
          await page.locator("nav .theme").click();
          await settled(page);
          assert.deepEqual(await unreadable(page), []);
          const after = await pixels(page, "block-back");
          assert.ok(before > 200 && after > 200, "blocks took the other theme's colour");
        },
        { dark },
      );
    }
    await open(
      "transfers",
      async (page) => {
        assert.equal(await overflow(page), 0);
        await choose(page, "block:under:vm", "vm");
        assert.equal(await overflow(page), 0);
        await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
        await settled(page);
        assert.ok((await pixels(page, "block-back")) > 50, "paper is light");
        const pdf = await page.pdf({ preferCSSPageSize: true });
        assert.ok(pdf.length > 60_000);
      },
      { width: 400, dark: true },
    );
  });
});
