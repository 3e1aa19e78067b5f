import assert from "node:assert/strict";
import { test } from "node:test";
import { exchangeId, layout, queueId, type Shown } from "../../src/pages/topology/layout";
import type { Binding, Exchange } from "../../src/types";

const exchange = (name: string): Exchange => ({
  name,
  vhost: "/",
  type: "topic",
  durable: true,
  auto_delete: false,
  internal: false,
  arguments: {},
});

const queue = (name: string, more: Record<string, unknown> = {}): Shown => ({
  name,
  type: "quorum",
  arguments: more,
  effective_policy_definition: {},
});

const binding = (source: string, to: string, kind: "queue" | "exchange", key: string): Binding => ({
  source,
  vhost: "/",
  destination: to,
  destination_type: kind,
  routing_key: key,
  arguments: {},
  properties_key: key,
});

test("what is led to stands to the right, and dead letters go on to the right", () => {
  const picture = layout(
    [exchange("shop"), exchange("dead"), exchange("unused")],
    [queue("orders", { "x-dead-letter-exchange": "dead" }), queue("orders.dead"), queue("alone")],
    [
      binding("shop", "orders", "queue", "a"),
      binding("shop", "orders", "queue", "b"),
      binding("dead", "orders.dead", "queue", ""),
    ],
    100,
  );
  const column = (id: string) => picture.boxes.find((box) => box.id === id)?.column;
  assert.deepEqual(
    [exchangeId("shop"), queueId("orders"), exchangeId("dead"), queueId("orders.dead")].map(column),
    [0, 1, 2, 3],
  );
  assert.equal(column(queueId("alone")), undefined, "nothing leads to it");
  assert.equal(column(exchangeId("unused")), undefined);
  const bound = picture.arrows.filter(({ kind }) => kind === "binding");
  assert.deepEqual(
    bound.map(({ text }) => text),
    ["a, b", ""],
  );
});

test("circles of exchanges and of dead letters end", () => {
  const picture = layout(
    [exchange("a"), exchange("b")],
    [queue("wait", { "x-dead-letter-exchange": "a" })],
    [
      binding("a", "b", "exchange", ""),
      binding("b", "a", "exchange", ""),
      binding("b", "wait", "queue", ""),
    ],
    100,
  );
  assert.ok(picture.columns <= 3);
  assert.equal(picture.arrows.length, 4);
});
