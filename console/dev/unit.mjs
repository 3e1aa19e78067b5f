// Runs the unit tests: bundles each into a temporary folder, and hands them to Node's own runner.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const TESTS = join(dirname(fileURLToPath(import.meta.url)), "../test/unit");
const out = mkdtempSync(join(tmpdir(), "console-unit-"));
try {
  const files = readdirSync(TESTS).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: files.map((name) => join(TESTS, name)),
    bundle: true,
    platform: "node",
    format: "esm",
    outdir: out,
    outExtension: { ".js": ".mjs" },
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".binpb": "binary" },
  });
  const built = readdirSync(out)
    .filter((name) => name.endsWith(".mjs"))
    .map((name) => join(out, name));
  process.exitCode =
    spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
