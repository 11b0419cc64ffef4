// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bundles the page into one file, dist/page.html, that needs no network and no other file.
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (/** @type {string} */ path) => fileURLToPath(new URL(`../${path}`, import.meta.url));

const bundle = async (entry, options) => {
  const result = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    legalComments: "none",
    ...options,
  });
  return result.outputFiles[0].text.trim();
};

// A function as replacement: in a text, `$&` would mean the match.
const replaceOnce = (text, mark, replacement) => {
  if (text.split(mark).length !== 2) throw new Error(`src/page.html must hold ${mark} once`);
  return text.replace(mark, () => replacement);
};

const script = await bundle("src/main.ts", {
  format: "iife",
  target: ["chrome100", "firefox100", "safari15"],
});
const style = await bundle("src/style/page.css", { target: ["chrome100", "firefox100", "safari15"] });
if (/<\/script|<!--/i.test(script)) throw new Error("the script would end its own element");

let page = await readFile(here("src/page.html"), "utf8");
page = replaceOnce(
  page,
  "<!-- licence of uPlot -->",
  `<!--\nuPlot, which draws the charts:\n${await readFile(here("node_modules/uplot/LICENSE"), "utf8")}-->`,
);
page = replaceOnce(page, "/* style */", style);
page = replaceOnce(page, "/* script */", script);
const hash = createHash("sha256").update(script).digest("base64");
page = replaceOnce(page, "hash of the script", `sha256-${hash}`);
await mkdir(here("dist"), { recursive: true });
await writeFile(here("dist/page.html"), page);
console.log(`dist/page.html: ${(Buffer.byteLength(page) / 1024).toFixed(0)} KiB`);
