// Looks at 10,000 queues that change each second for some minutes, and says whether the memory of the tab stays flat.
//
//   node test/browser/endure.mjs http://127.0.0.1:8080 [--minutes 5] [--queues 10000]

import { chromium } from "playwright-core";

/** The heap may be larger at the end than after the first minute by so much. */
const GROWTH_MAX = 1.15;

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const base = process.argv[2];
const [minutes, count] = [Number(option("minutes", "5")), Number(option("queues", "10000"))];

/** Stands in for the browser's event source: the node's events, without a node that has so much to do. */
function fake(queues) {
  const columns = [
    "id",
    "messages_ready",
    "messages_unacknowledged",
    "consumers",
    "publish_rate",
    "ack_rate",
  ];
  const row = (id) => {
    const any = (most) => Math.floor(Math.random() * most);
    return [id, any(10_000), any(50), any(4), any(900) / 10, any(900) / 10];
  };
  const rows = () => Array.from({ length: queues }, (_, id) => row(id));
  window.EventSource = class extends EventTarget {
    constructor() {
      super();
      const send = (name, data) =>
        this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
      setTimeout(() => {
        send("begin", { columns });
        send("queues", { new: rows().map(([id]) => [id, "/", `queue-${id}`]), changed: rows() });
        send("complete", {});
      });
      this.timer = setInterval(() => {
        send("queues", { changed: rows() });
        send("overview", { alarms: [], object_totals: {}, message_stats: {} });
      }, 1_000);
    }
    close() {
      clearInterval(this.timer);
    }
  };
}

const browser = await chromium.launch({
  executablePath: option("browser", "/usr/bin/chromium"),
  args: ["--no-sandbox"],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
await page.addInitScript(fake, count);
await page.goto(base);
await page.getByLabel("User").fill(option("user", "guest"));
await page.getByLabel("Password").fill(option("password", "guest"));
await page.getByRole("button", { name: "Log in" }).click();
await page.waitForSelector("header.bar");
await page.goto(`${base}/queues?sort=-growth`);
await page.waitForSelector("tbody tr[data-row]");

const devtools = await page.context().newCDPSession(page);
await devtools.send("Performance.enable");
const busy = async () => {
  const { metrics } = await devtools.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "TaskDuration").value;
};
const heaps = [];
for (let half = 0; half < minutes * 2; half += 1) {
  const [before, began] = [await busy(), performance.now()];
  await page.waitForTimeout(30_000);
  const share = ((await busy()) - before) / ((performance.now() - began) / 1000);
  await devtools.send("HeapProfiler.collectGarbage");
  const { usedSize } = await devtools.send("Runtime.getHeapUsage");
  heaps.push(usedSize);
  const mebibytes = (usedSize / 1024 / 1024).toFixed(1);
  console.log(`${(half + 1) / 2} min: ${mebibytes} MiB, ${(share * 100).toFixed(1)} % of a core`);
}
await browser.close();
// The first two are before the sparklines are full.
const growth = heaps.at(-1) / (heaps[2] ?? heaps[0]);
console.log(`the heap is ${growth.toFixed(2)} times what it was after 1.5 minutes`);
process.exit(growth <= GROWTH_MAX ? 0 : 1);
