// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bundles each test to plain JavaScript, because Node.js 18 reads no TypeScript, and runs them.
import { spawnSync } from "node:child_process";
import { readdir, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const tests = (await readdir(`${root}/test`)).filter((name) => name.endsWith(".test.ts"));
await rm(`${root}/dist/test`, { recursive: true, force: true });
await build({
  absWorkingDir: root,
  entryPoints: tests.map((name) => `test/${name}`),
  outdir: "dist/test",
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node18",
  packages: "external",
  sourcemap: "inline",
});
const files = tests.map((name) => `dist/test/${name.replace(/\.ts$/, ".mjs")}`);
const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], {
  cwd: root,
  stdio: "inherit",
});
process.exit(run.status ?? 1);
