// SPDX-License-Identifier: Apache-2.0 OR MIT
// Cells in a real browser: their rows of the matrix, their exits, their life after the host's crash.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Page } from "playwright-core";
import { open, overflow, settled, skip, unreadable, withBrowser } from "./support-browser";

describe("cells in a browser", { skip }, () => {
  withBrowser();

  const isolation = (page: Page, disturbance: string, domain: string) =>
    page.locator(`td[data-disturbance="${disturbance}"][data-domain="${domain}"]`);

  test("each cell is a row and a column of the matrix, disturbed and watched", async () => {
    await open("cells", async (page) => {
      // Blocks and one load, made in each of four domains and watched in each.
      assert.equal(await page.locator(".transfer").count(), 8 * 4);
      assert.match(await isolation(page, "block:host", "cell").innerText(), /✓ holds\s+−?0\.0\d/);
      assert.match(await isolation(page, "block:cell:linux", "cell:linux").innerText(), /● control/);
      assert.match(await isolation(page, "cache:cell", "cell").innerText(), /○ own/);
      await isolation(page, "block:cell", "task").locator("button").click();
      await settled(page);
      assert.match(
        await page.locator("#pair").innerText(),
        /by the measuring program itself, without interrupts/,
      );
      await isolation(page, "cache:cell:linux", "host").locator("button").click();
      await settled(page);
      assert.match(
        await page.locator("#pair").innerText(),
        /cache:cell:linux seen from host[\s\S]*rampart-meter load cache/,
      );
    });
  });

  test("exits are listed by reason, and no exit for an interrupt is green", async () => {
    await open("cells", async (page) => {
      const rows = page.locator("#cells table tbody tr");
      assert.equal(await rows.count(), 2);
      const [bare, linux] = await Promise.all([rows.nth(0).innerText(), rows.nth(1).innerText()]);
      const cells = (text: string) => text.split("\t").map((cell) => cell.trim());
      assert.deepEqual([cells(bare)[0], ...cells(bare).slice(3)], ["cell emulated", "0", "✓ 0", "0"]);
      assert.match(linux, /^cell:linux/);
      assert.match(linux, /\d+: \d+ software-interrupt$/);
      assert.equal(await rows.locator(".badge.holds").count(), 2);
      const words = await page.locator("#cells").innerText();
      assert.match(words, /no operating system: \/usr\/lib\/rampart\/rampart-cell-meter/);
      assert.match(words, /Linux: \/boot\/vmlinuz-6\.1\.0-56-rt-arm64/);
      assert.match(words, /18\sMiB[\s\S]*128\sMiB/);
      assert.match(words, /its kernel has one CPU/);
    });
  });

  test("shows that cells survive the host, with their records after the crash", async () => {
    await open("cells", async (page) => {
      const lives = page.locator("#crash tbody tr");
      assert.equal(await lives.count(), 4);
      for (const [at, words] of [
        [0, /host[\s\S]*ended[\s\S]*61\.2\sms before/],
        [2, /cell[\s\S]*survived[\s\S]*still measuring 10\ss after/],
        [3, /cell:linux[\s\S]*survived[\s\S]*2\s527 samples recorded after it, worst .*, without a gap/],
      ] as const)
        assert.match(await lives.nth(at).innerText(), words);
      assert.equal(await page.locator("#crash svg.life rect.holds:not(.unsure)").count(), 2);
      const row = page.locator(".comparison tbody tr", { hasText: "survives" });
      assert.ok((await row.getByRole("link", { name: "crash:host holds" }).count()) >= 2);
    });
  });

  test("light, dark and narrow they are readable", async () => {
    for (const dark of [false, true])
      await open("cells", async (page) => assert.deepEqual(await unreadable(page), []), { dark });
    await open("cells", async (page) => assert.equal(await overflow(page), 0), { width: 400 });
  });
});
