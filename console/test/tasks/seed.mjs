// What the tasks are done on: the same in every broker.

import { connect, message } from "./amqp.mjs";

export const VHOST = "tasks";

/** So many messages are written at once. */
const CHUNK = 1_000;

const q = encodeURIComponent;

export async function seed(send, amqp, { user, messages }) {
  const all = { configure: ".*", write: ".*", read: ".*" };
  await send("PUT", `/vhosts/${VHOST}`, {});
  await send("PUT", `/permissions/${VHOST}/${q(user)}`, all);
  const queue = (name, args = {}) =>
    send("PUT", `/queues/${VHOST}/${name}`, { durable: true, arguments: args });
  const dead = { "x-dead-letter-exchange": "dead" };
  await send("PUT", `/exchanges/${VHOST}/dead`, { type: "fanout", durable: true });
  await queue("jobs.dead");
  await send("POST", `/bindings/${VHOST}/e/dead/q/jobs.dead`, { routing_key: "", arguments: {} });
  await queue("jobs", dead);
  await queue("capped", { ...dead, "x-max-length": 1 });
  for (const name of ["million", "slow", "grows", "grows.slowly", "scratch"]) await queue(name);

  const client = await connect({ ...amqp, vhost: VHOST, name: "seed" });
  const fill = async (name, count, bodyOf, seconds) => {
    for (let at = 0; at < count; at += CHUNK) {
      const size = Math.min(CHUNK, count - at);
      const part = Array.from({ length: size }, (_, index) =>
        message("", name, bodyOf(at + index), seconds),
      );
      await client.send(Buffer.concat(part));
    }
  };
  await fill("jobs", 500, (at) => `{"job":${at}}`, 0);
  await fill("capped", 201, (at) => `{"job":${at}}`);
  await fill("slow", 100, (at) => `{"bill":${at}}`);
  await fill("scratch", 100, (at) => `{"scratch":${at}}`);
  // The highest number first: the one that is sought comes late.
  await fill("million", messages, (at) => `{"order":${messages - at}}`);
  await counted(send, "million", messages);
  client.close();
}

/** Waits until a queue has so many messages ready. */
async function counted(send, name, count) {
  for (;;) {
    const told = await (await send("GET", `/queues/${VHOST}/${name}`)).json();
    if ((told.messages_ready ?? told.messages) >= count) return;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

/** A consumer that holds what it gets, and publishers of queues that grow. Answers with what stops them. */
export async function clients(amqp) {
  const worker = await connect({ ...amqp, vhost: VHOST, name: "billing-worker-7" });
  await worker.hold("slow", 60, "billing");
  const publisher = await connect({ ...amqp, vhost: VHOST, name: "shop-publisher" });
  const rates = { grows: 40, "grows.slowly": 5 };
  const timer = setInterval(() => {
    for (const [name, count] of Object.entries(rates))
      void publisher.send(Buffer.concat(Array(count).fill(message("", name, "more"))));
  }, 200);
  return {
    worker,
    stop() {
      clearInterval(timer);
      worker.close();
      publisher.close();
    },
  };
}

export async function clear(send) {
  for (const path of [`/vhosts/${VHOST}`, "/users/colleague"])
    await send("DELETE", path).catch(() => undefined);
}
