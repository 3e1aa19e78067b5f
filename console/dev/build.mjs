// Builds dist/: index.html, one script, one style sheet, one icon. Names carry a hash of what is in the files, so that
// a browser may keep them for good, and the same sources always give the same files.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..");
const DIST = join(ROOT, "dist");

/** What the whole console may weigh, compressed. */
const BYTES_MAX = 400 * 1024;

const result = await build({
  absWorkingDir: ROOT,
  entryPoints: ["src/main.tsx"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  write: false,
  outdir: "dist",
});

rmSync(DIST, { recursive: true, force: true });
mkdirSync(DIST, { recursive: true });

const written = [];

function write(name, contents) {
  writeFileSync(join(DIST, name), contents);
  written.push([name, contents.length, gzipSync(contents).length]);
  return name;
}

function hashed(stem, extension, contents) {
  const hash = createHash("sha256").update(contents).digest("hex").slice(0, 10);
  return write(`${stem}-${hash}.${extension}`, contents);
}

function output(extension) {
  const file = result.outputFiles.find((it) => it.path.endsWith(extension));
  if (!file) throw new Error(`esbuild wrote no ${extension} file`);
  return Buffer.from(file.contents);
}

const names = {
  SCRIPT: hashed("console", "js", output(".js")),
  STYLE: hashed("console", "css", output(".css")),
  ICON: hashed("icon", "svg", readFileSync(join(ROOT, "src/icon.svg"))),
};
let page = readFileSync(join(ROOT, "src/index.html"), "utf8");
for (const [mark, name] of Object.entries(names)) page = page.replaceAll(mark, `/${name}`);
write("index.html", Buffer.from(page));

for (const [name, raw, packed] of written) console.log(`${name}: ${raw} bytes, ${packed} gzipped`);
const packed = written.reduce((sum, [, , bytes]) => sum + bytes, 0);
console.log(`${readdirSync(DIST).length} files, ${packed} bytes gzipped of at most ${BYTES_MAX}`);
if (packed > BYTES_MAX) process.exit(1);
