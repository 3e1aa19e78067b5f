// Ten tasks of an operator, in this console and beside it in RabbitMQ's: clicks, keys and seconds of each.
//
//   node test/tasks/run.mjs --console http://127.0.0.1:8080 --amqp 127.0.0.1:5672 [--messages 1000000]
//       [--rabbit http://127.0.0.1:15673 --rabbit-amqp 127.0.0.1:5673 --rabbitmqctl "rabbitmqctl -n NODE"] [--only NAME]
//
// A key is one letter. Seconds are the browser's: hands and eyes come on top.

import { chromium } from "playwright-core";
import { client } from "../browser/seed.mjs";
import { Hands } from "./hands.mjs";
import * as millrace from "./millrace.mjs";
import * as rabbitmq from "./rabbitmq.mjs";
import { clear, clients, seed } from "./seed.mjs";

const NAMES = {
  stands: "find why a publisher stands still",
  find: "find order 4711 in a queue without touching it",
  retry: "send 500 dead letters of one reason back at 50 a second",
  oldest: "see who holds the oldest unacked message, and close it",
  grows: "find the queue that grows fastest",
  undo: "purge by mistake, and undo it",
  pause: "pause a consumer",
  leader: "see when the leader changed last night",
  access: "give a colleague read-only access",
  share: "share the view by its address",
};

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const [user, password, only] = [
  option("user", "guest"),
  option("password", "guest"),
  option("only"),
];
const messages = Number(option("messages", "1000000"));

const address = (text) => {
  const [host, port] = text.split(":");
  return { host, port: Number(port), user, password };
};

/** Requests with a password, as RabbitMQ takes them. */
function basic(base) {
  const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
  return async (method, path, data) => {
    const headers = { authorization, "content-type": "application/json" };
    const body = data === undefined ? {} : { body: JSON.stringify(data) };
    const answer = await fetch(`${base}/api${path}`, { method, headers, ...body });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer;
  };
}

/** Requests of somebody who is logged in at the console, in a window of its own. */
async function session(browser, base) {
  const context = await browser.newContext();
  const data = { username: user, password };
  const answer = await context.request.post(`${base}/api/millrace/session`, { data });
  const { csrf } = await answer.json();
  return client(context, base, csrf);
}

/** Does one task. Answers with a row of the table. */
async function once(task, base, broker, tools) {
  if (task.not) return { note: `not possible: ${task.not}` };
  const { page } = tools;
  const hands = new Hands(page);
  try {
    await task.before?.(tools);
    await broker.start(page, base);
    const began = performance.now();
    const note = await task.act({ ...tools, hands });
    const seconds = (performance.now() - began) / 1000;
    return {
      clicks: hands.clicks,
      keys: hands.keys,
      seconds: seconds.toFixed(1),
      note: note ?? "",
    };
  } catch (error) {
    return { note: `FAILED: ${String(error).split("\n").slice(0, 3).join(" ")}` };
  } finally {
    await task.after?.(tools);
  }
}

async function all(browser, base, amqp, broker, tasks, send) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const rows = {};
  let held;
  try {
    await clear(send);
    await seed(send, amqp, { user, messages });
    held = await clients(amqp);
    // Rates need some seconds until they are known.
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    await broker.logIn(page, base, user, password);
    for (const name of Object.keys(NAMES)) {
      if (only && only !== name) continue;
      rows[name] = await once(tasks[name], base, broker, { page, browser, context });
      console.error(`${name}: ${JSON.stringify(rows[name])}`);
    }
  } finally {
    held?.stop();
    await clear(send);
    await context.close();
  }
  return rows;
}

const cell = (row) =>
  row === undefined
    ? ""
    : row.clicks === undefined
      ? "–"
      : `${row.clicks} / ${row.keys} / ${row.seconds}`;

const browser = await chromium.launch({
  executablePath: option("browser", "/usr/bin/chromium"),
  args: ["--no-sandbox"],
});
let failed = 0;
try {
  const [here, rabbit] = [option("console"), option("rabbit")];
  let [ours, theirs] = [{}, {}];
  if (here) {
    const send = await session(browser, here);
    ours = await all(browser, here, address(option("amqp")), millrace, millrace.TASKS, send);
  }
  if (rabbit) {
    const tasks = rabbitmq.tasks(option("rabbitmqctl"));
    const amqp = address(option("rabbit-amqp"));
    theirs = await all(browser, rabbit, amqp, rabbitmq, tasks, basic(rabbit));
  }
  console.log(
    "| Task | Millrace: clicks / keys / seconds | RabbitMQ | Notes |\n| --- | --- | --- | --- |",
  );
  for (const [name, text] of Object.entries(NAMES)) {
    const notes = [
      ["Millrace", ours[name]?.note],
      ["RabbitMQ", theirs[name]?.note],
    ].filter(([, note]) => note);
    console.log(
      `| ${text} | ${cell(ours[name])} | ${cell(theirs[name])} | ${notes.map(([who, note]) => `${who}: ${note}`).join(". ")} |`,
    );
    for (const [, note] of notes) failed += Number(note.startsWith("FAILED"));
  }
} finally {
  await browser.close();
}
process.exit(failed === 0 ? 0 : 1);
