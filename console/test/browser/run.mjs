// Opens every page of a console in a browser, and does what operators do.
//
//   node test/browser/run.mjs http://127.0.0.1:8080 [--user guest] [--password guest] [--only TEXT]
//     [--shots DIR [--all-shots]]: pictures of what has faults, or of everything
//     [--flows]: only what operators do, no look at each page

import { mkdirSync } from "node:fs";
import { chromium } from "playwright-core";
import { inspect, settled, watch } from "./checks.mjs";
import { FLOWS } from "./flows.mjs";
import { KEPT } from "./flows_kept.mjs";
import { withClients, withErrors, withNothing, withProblems } from "./mocks.mjs";
import { PAGES } from "./pages.mjs";
import { clear, client, seed } from "./seed.mjs";

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};

const base = (process.argv[2] ?? "").replace(/\/$/, "");
if (!/^https?:/.test(base)) {
  console.error("say the address of a console: node test/browser/run.mjs http://127.0.0.1:8080");
  process.exit(2);
}
const [user, password] = [option("user", "guest"), option("password", "guest")];
const [shots, only] = [option("shots"), option("only", "")];
const allShots = process.argv.includes("--all-shots");
if (shots) mkdirSync(shots, { recursive: true });

const SIZES = { desk: { width: 1280, height: 860 }, phone: { width: 360, height: 740 } };

/** What is put in the node's place, in which sizes and themes. */
const CASES = [
  { name: "data", mocks: [withClients], size: "desk", theme: "light" },
  { name: "data", mocks: [withClients, withProblems], size: "desk", theme: "dark" },
  { name: "data", mocks: [withClients, withProblems], size: "phone", theme: "light" },
  { name: "data", mocks: [withClients], size: "phone", theme: "dark" },
  { name: "empty", mocks: [withNothing], size: "desk", theme: "light" },
  { name: "empty", mocks: [withNothing], size: "phone", theme: "dark" },
  { name: "error", mocks: [withErrors], size: "desk", theme: "light" },
  { name: "error", mocks: [withErrors], size: "phone", theme: "dark" },
];

const browser = await chromium.launch({
  executablePath: option("browser", "/usr/bin/chromium"),
  args: ["--no-sandbox"],
});

async function logIn(page, name, secret) {
  await page.context().clearCookies();
  await page.goto(base);
  await page.getByLabel("User").fill(name);
  await page.getByLabel("Password").fill(secret);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForSelector("header.bar");
}

let [visits, failed] = [0, 0];

function say(what, faults) {
  visits += 1;
  if (faults.length === 0) return;
  failed += 1;
  console.log(`${what}\n${faults.map((fault) => `    ${fault}`).join("\n")}`);
}

async function look({ name, mocks, size, theme }) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: theme });
  const page = await context.newPage();
  const taken = await watch(page, base);
  await logIn(page, user, password);
  for (const mock of mocks) await mock(page);
  for (const [index, path] of PAGES.entries()) {
    if (!path.includes(only)) continue;
    await page.goto(base + path);
    await settled(page);
    const faults = [...(await inspect(page)), ...taken()];
    say(`${name} ${size} ${theme} ${path}`, faults);
    if (shots && (allShots || faults.length > 0))
      await page.screenshot({
        path: `${shots}/${name}-${size}-${theme}-${String(index).padStart(2, "0")}.png`,
      });
  }
  await end(context, page);
}

/** What a page still asks for when it ends gets no answer of a mock, and that is no fault. */
async function end(context, page) {
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await context.close();
}

async function act(name, flow) {
  const context = await browser.newContext({ viewport: SIZES.desk });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const taken = await watch(page, base);
  const open = async (path) => {
    await page.goto(base + path);
    await settled(page);
  };
  const faults = [];
  try {
    await logIn(page, user, password);
    const note = await flow({ page, open, base, logIn });
    if (note) console.log(`${name}: ${note}`);
  } catch (error) {
    faults.push(String(error).split("\n").slice(0, 12).join(" "));
    if (shots) await page.screenshot({ path: `${shots}/failed-${name.replaceAll(" ", "-")}.png` });
  }
  say(name, [...faults, ...taken()]);
  await end(context, page);
}

const first = await browser.newContext();
const page = await first.newPage();
await logIn(page, user, password);
const { csrf } = await (await first.request.get(`${base}/api/millrace/session`)).json();
const send = client(first, base, csrf);
await clear(send);
await seed(send, user);
try {
  if (!process.argv.includes("--flows")) for (const one of CASES) await look(one);
  for (const [name, flow] of Object.entries({ ...FLOWS, ...KEPT }))
    if (name.includes(only)) await act(name, flow);
} finally {
  await clear(send);
  await browser.close();
}
console.log(`${visits} looked at, ${failed} with faults`);
process.exit(failed === 0 ? 0 : 1);
