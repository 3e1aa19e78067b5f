// What tsc does not say: rules of this folder that a line of text can break.

import { readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..");
const COLUMNS_MAX = 120;
const LINES_MAX = 500;

/** Files of texts alone. */
const TEXTS = ["src/words.ts", "src/snippet.ts"];

const RULES = [
  [/(:|<|\bas) any\b|any\[\]/, "no `any`: say the type, or `unknown`"],
  [/\bstyle="/, "no style attribute as text: the content security policy refuses it"],
  [
    /dangerouslySetInnerHTML|innerHTML|\beval\(|new Function/,
    "nothing that makes markup or code of text",
  ],
  [/^\s*console\.(log|debug)/, "no leftovers of debugging"],
  [/\b(TODO|FIXME|XXX)\b/, "a known gap is a line in NEEDS.md or an issue"],
  [/@ts-(ignore|nocheck)/, "no silenced types"],
  [/https?:\/\/(?!www\.w3\.org)/, "no address of another host"],
];

/** Words that people read belong into words.ts: text between tags, and the attributes that are read out. */
const WORDS = [
  />\s*[A-Z][a-z]+[^<>{}=;()]*<\//,
  /\b(aria-label|title|placeholder)="[^"]*[A-Za-z]{2}/,
];

function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

const faults = [];
for (const path of files(join(ROOT, "src")).filter((it) => /\.(tsx?|css)$/.test(it))) {
  const name = relative(ROOT, path);
  const lines = readFileSync(path, "utf8").split("\n");
  // A sentence is a line, however long; a program to copy prints what it got.
  const isWords = TEXTS.includes(name);
  if (lines.length > LINES_MAX && !isWords)
    faults.push(`${name}: ${lines.length} lines, at most ${LINES_MAX}`);
  lines.forEach((line, index) => {
    const fault = (why) => faults.push(`${name}:${index + 1}: ${why}`);
    if (line.length > COLUMNS_MAX && !isWords)
      fault(`${line.length} columns, at most ${COLUMNS_MAX}`);
    for (const [pattern, why] of RULES) if (pattern.test(line) && !isWords) fault(why);
    if (name.endsWith(".tsx") && WORDS.some((pattern) => pattern.test(line)))
      fault("words belong into words.ts");
  });
}
for (const fault of faults) console.error(fault);
console.log(faults.length === 0 ? "lint: nothing found" : `lint: ${faults.length} found`);
process.exitCode = faults.length === 0 ? 0 : 1;
