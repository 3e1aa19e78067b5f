// Builds dist/: index.html, a script, what the script loads later, a style sheet, an icon. Names carry a hash of what is
// in the files, so that a browser may keep them for good, and the same sources always give the same files.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..");
const DIST = join(ROOT, "dist");

/** What the whole console may weigh, compressed. */
const BYTES_MAX = 400 * 1024;

/** Files that the page names: they get their own names below. */
const ENTRY = ["main.js", "main.css"];

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
  // What is loaded later is a script of its own.
  splitting: true,
  chunkNames: "[name]-[hash]",
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

function output(name) {
  const file = result.outputFiles.find((it) => basename(it.path) === name);
  if (!file) throw new Error(`esbuild wrote no ${name}`);
  return Buffer.from(file.contents);
}

for (const { path, contents } of result.outputFiles)
  if (dirname(path) === DIST && !ENTRY.includes(basename(path))) write(basename(path), contents);

const names = {
  SCRIPT: hashed("console", "js", output("main.js")),
  STYLE: hashed("console", "css", output("main.css")),
  ICON: hashed("icon", "svg", readFileSync(join(ROOT, "src/icon.svg"))),
};
let page = readFileSync(join(ROOT, "src/index.html"), "utf8");
for (const [mark, name] of Object.entries(names)) page = page.replaceAll(mark, `/${name}`);
write("index.html", Buffer.from(page));

for (const [name, raw, packed] of written) console.log(`${name}: ${raw} bytes, ${packed} gzipped`);
const packed = written.reduce((sum, [, , bytes]) => sum + bytes, 0);
console.log(`${readdirSync(DIST).length} files, ${packed} bytes gzipped of at most ${BYTES_MAX}`);
if (packed > BYTES_MAX) process.exit(1);
