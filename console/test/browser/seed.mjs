// What the pages show: made through the console's own address, so that the test needs nothing else.

import { VHOST } from "./pages.mjs";

const q = encodeURIComponent;
const V = q(VHOST);

/** Sends requests of a logged-in browser context. */
export function client(context, base, csrf) {
  return async (method, path, data) => {
    const answer = await context.request.fetch(`${base}/api${path}`, {
      method,
      headers: { "x-millrace-csrf": csrf },
      ...(data === undefined ? {} : { data }),
    });
    if (!answer.ok())
      throw new Error(`${method} ${path}: ${answer.status()} ${await answer.text()}`);
    return answer;
  };
}

export async function seed(send, user) {
  const all = { configure: ".*", write: ".*", read: ".*" };
  await send("PUT", `/vhosts/${V}`, { description: "made by the console's test" });
  await send("PUT", `/permissions/${V}/${q(user)}`, all);
  await send("PUT", "/users/console-test-user", { password: "x", tags: "monitoring,read-only" });
  await send("PUT", `/permissions/${V}/console-test-user`, { ...all, configure: "" });
  const queue = (name, args) =>
    send("PUT", `/queues/${V}/${name}`, { durable: true, arguments: args });
  await send("PUT", `/exchanges/${V}/shop`, { type: "topic", durable: true });
  await send("PUT", `/exchanges/${V}/dead`, { type: "fanout", durable: true });
  await queue("orders", { "x-queue-type": "quorum", "x-dead-letter-exchange": "dead" });
  await queue("short", { "x-message-ttl": 1, "x-dead-letter-exchange": "dead" });
  await queue("orders.dead", { "x-queue-type": "quorum" });
  await queue("log", { "x-queue-type": "stream", "x-partitions": 2 });
  await queue("log.reader", {
    "x-queue-type": "subscription",
    "x-stream": "log",
    "x-stream-offset": "first",
  });
  const bind = (source, name, key) =>
    send("POST", `/bindings/${V}/e/${source}/q/${name}`, { routing_key: key, arguments: {} });
  await bind("shop", "orders", "orders.#");
  await bind("shop", "log", "#");
  await bind("dead", "orders.dead", "");
  await send("PUT", `/policies/${V}/bounded`, {
    pattern: "^orders",
    "apply-to": "queues",
    priority: 1,
    definition: { "max-length": 100000 },
  });
  await send("PUT", `/vhost-limits/${V}/max-queues`, { value: 50 });
  await send("PUT", `/millrace/locks/${V}/nightly`, { owner: "test", lease_ms: 600_000 });
  await send("PUT", `/millrace/queues/${V}/log.reader/pause`);
  for (let order = 1; order <= 30; order += 1) {
    const payload = JSON.stringify({ order, lines: [{ sku: "A", count: order % 3 }] });
    const headers = { tenant: order % 2 ? "acme" : "zenith" };
    await publish(send, "shop", "orders.eu", payload, {
      content_type: "application/json",
      headers,
    });
  }
  for (let order = 1; order <= 5; order += 1)
    await publish(send, "amq.default", "short", "too late", {});
  // Two in Protobuf: one names its type, one does not.
  await queue("proto", { "x-queue-type": "quorum" });
  await publish(send, "amq.default", "proto", ORDER, {}, "base64");
  await publish(send, "amq.default", "proto", ORDER, { type: "shop.Order" }, "base64");
}

/** A shop.Order of test/unit/fixtures/shop.proto. */
const ORDER =
  "CIGAgICAgIAQEgNhbm4aBQoBQRACIgYIwKew2AYoATIuCiJ0eXBlLmdvb2dsZWFwaXMuY29tL3Nob3AuQ2FuY2VsbGVkEggIBxIEbGF0ZToC/wA=";

function publish(send, exchange, routing_key, payload, properties, payload_encoding = "string") {
  const body = { routing_key, payload, payload_encoding, properties };
  return send("POST", `/exchanges/${V}/${exchange}/publish`, body);
}

export async function clear(send) {
  const users = ["console-test-user", "console-test-reader"];
  for (const path of [`/vhosts/${V}`, ...users.map((name) => `/users/${name}`)])
    await send("DELETE", path).catch(() => undefined);
}
