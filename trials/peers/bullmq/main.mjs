// A queue of jobs that do nothing, worked off by BullMQ: `node main.mjs fill|work PORT JOBS CONCURRENCY`.
//
// `work` prints `first` when the first job is handled and `done` when the last one is.
import { Queue, Worker } from "bullmq";

const [, , what, port, jobsText, concurrencyText] = process.argv;
const jobs = Number(jobsText);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const body = { order: 4711, customer: "c-17", note: "0123456789abcdef0123456789abcdef0123456789abcdef" };

async function fill() {
  const queue = new Queue("noop", { connection });
  for (let left = jobs; left > 0; left -= 1000) {
    const count = Math.min(left, 1000);
    const options = { removeOnComplete: true };
    await queue.addBulk(Array.from({ length: count }, () => ({ name: "noop", data: body, opts: options })));
  }
  await queue.close();
}

async function work() {
  let handled = 0;
  let completed = 0;
  const worker = new Worker(
    "noop",
    async () => {
      if (++handled === 1) console.log("first");
    },
    { connection, concurrency: Number(concurrencyText) },
  );
  await new Promise((resolve) => {
    worker.on("completed", () => {
      if (++completed === jobs) resolve();
    });
  });
  console.log("done");
  await worker.close();
}

await (what === "fill" ? fill() : work());
