import assert from "node:assert/strict";
import { test } from "node:test";
import { reads } from "../../src/core/rights";
import { roleOf } from "../../src/core/role";
import { worstFirst } from "../../src/core/problems";
import { field } from "../../src/core/format";
import { editOf } from "../../src/pages/dead/edit";
import { bodyOf } from "../../src/pages/dead/retry";
import { askedHeader, hasHeader } from "../../src/pages/queue/looked";
import { placeOf } from "../../src/pages/queue/seek";
import { offerOf } from "../../src/pages/queues/undo";
import { snippet } from "../../src/snippet";
import type { Message, Problem } from "../../src/types";
import { jsonObject } from "../../src/ui/json";
import { matches } from "../../src/ui/search";
import { sparkPath } from "../../src/ui/spark";
import { windowOf } from "../../src/ui/window";

test("a role is what the tags say", () => {
  const admin = roleOf(["administrator"]);
  assert.ok(admin.monitors && admin.makesPolicies && admin.peeks && admin.changes);
  const viewer = roleOf(["monitoring", "read-only"]);
  assert.ok(viewer.monitors && !viewer.changes && !viewer.administrates && !viewer.peeks);
  assert.ok(!roleOf([]).monitors);
});

test("who may not read from a queue is not offered to purge it, and the node decides what is not told", () => {
  const of = (read: string) => ({ shop: { configure: "", write: "", read } });
  assert.ok(reads(of("^ord"), "shop", "orders"));
  assert.ok(!reads(of("^ord"), "shop", "bills"));
  assert.ok(!reads(of("^ord"), "other", "orders"));
  assert.ok(!reads(of(""), "shop", "orders"));
  assert.ok(reads(undefined, "shop", "orders"), "a token");
  assert.ok(reads(of("(?i)^ORD"), "shop", "orders"), "the browser cannot read the pattern");
});

test("only purges that took something can be undone, for as long as the first of them can", () => {
  const purged = (name: string, messages: number, askedMs: number) => {
    const queue = { name } as Parameters<typeof offerOf>[0][number]["queue"];
    return { queue, messages, askedMs };
  };
  assert.equal(offerOf([], 5), undefined);
  assert.equal(offerOf([purged("a", 0, 0)], 5), undefined);
  const all = [purged("a", 0, 0), purged("b", 3, 1_000), purged("c", 4, 9_000)];
  const offer = offerOf(all, 10_000);
  assert.deepEqual([offer?.of.length, offer?.messages, offer?.leftMs], [2, 7, 51_000]);
  assert.deepEqual(offerOf(all, 61_000)?.messages, 4, "the minute of the first is over");
  assert.equal(offerOf(all, 70_000), undefined);
});

test("problems of the partitions of a queue are one, and critical ones come first", () => {
  const problem = (severity: Problem["severity"], name: string): Problem => ({
    kind: "queue_grows",
    severity,
    since: 1,
    object: { queue: { vhost: "/", name } },
    what: name,
    remedy: "",
    seen_by: [],
  });
  const all = worstFirst([
    problem("warning", "a"),
    problem("warning", "a"),
    problem("critical", "b"),
  ]);
  assert.deepEqual(
    all.map(({ first, count }) => [first.what, count]),
    [
      ["b", 1],
      ["a", 2],
    ],
  );
});

test("a filter wants all of its words, in any case", () => {
  assert.ok(matches("ORD eu", "orders", "eu-west"));
  assert.ok(!matches("orders us", "orders", "eu"));
  assert.ok(matches("", "anything"));
});

test("only rows in sight are made", () => {
  assert.deepEqual(windowOf(10_000, 30, 0, 600), { first: 0, end: 32 });
  const { first, end } = windowOf(10_000, 30, 150_000, 600);
  assert.ok(first > 4_900 && end < 5_100);
  assert.deepEqual(windowOf(5, 30, 9_999, 600), { first: 0, end: 5 });
});

test("a sparkline has gaps where nothing is known, and none for too few values", () => {
  assert.equal(sparkPath([1], 10, 10), "");
  assert.equal(sparkPath([1, null, 2, 3], 9, 10).match(/M/g)?.length, 2);
});

test("a header is found by its name, and by its value, which the node is asked for", () => {
  const message = { properties: { headers: { tenant: "acme", n: 5 } } } as unknown as Message;
  assert.ok(hasHeader(message, "tenant"));
  assert.ok(hasHeader(message, "tenant: acme"));
  assert.ok(!hasHeader(message, "tenant: ac"));
  assert.ok(hasHeader(message, ""));
  assert.ok(hasHeader(message, "n:5"));
  assert.ok(!hasHeader(message, "tenant:zenith"));
  assert.ok(!hasHeader(message, "other"));
  assert.equal(askedHeader("tenant: a:b "), "tenant:a:b");
  assert.equal(askedHeader("tenant:"), undefined);
});

test("an edited dead letter says only what was changed, and a time is a field's in the viewer's zone", () => {
  const before = { payload: "a", encoding: "string", headers: '{"n": 1}' } as const;
  assert.deepEqual(editOf(before, before), {});
  const payload = editOf(before, { ...before, payload: "/w==", encoding: "base64" });
  assert.deepEqual(payload, { payload: "/w==", payload_encoding: "base64" });
  assert.deepEqual(editOf(before, { ...before, headers: "" }), { headers: {} });
  const at = new Date(2026, 10, 29, 18, 3, 7).getTime();
  assert.equal(field(at), "2026-11-29T18:03:07");
  assert.equal(new Date(field(at)).getTime(), at);
  assert.equal(field(Date.parse("")), "");
});

test("a place to seek to is what the API takes", () => {
  assert.deepEqual(placeOf("first", ""), { offset: "first" });
  assert.deepEqual(placeOf("offset", "17"), { offset: 17 });
  assert.deepEqual(placeOf("age", "6h"), { offset: "6h" });
  assert.equal(placeOf("age", "6 hours"), undefined);
  assert.deepEqual(placeOf("time", "2020-09-13T12:26:40Z"), { timestamp: 1_600_000_000 });
  assert.equal(placeOf("time", ""), undefined);
});

test("a retry says only what somebody filled in", () => {
  const plan = {
    to: "queue",
    target: "",
    key: "",
    rate: "50",
    limit: "",
    maxRetries: "",
    contains: "",
  } as const;
  const body = JSON.parse(JSON.stringify(bodyOf(plan, { reason: "expired" }, true))) as unknown;
  assert.deepEqual(body, { to: "queue", reason: "expired", rate: 50, dry_run: true });
  const named = bodyOf({ ...plan, to: "named exchange", target: "x", key: "k" }, {}, false);
  assert.equal(named.exchange, "x");
  assert.equal(named.routing_key, "k");
});

test("a JSON object is an object, and nothing else is", () => {
  assert.deepEqual(jsonObject(""), {});
  assert.deepEqual(jsonObject('{"a":1}'), { a: 1 });
  for (const wrong of ["[1]", "1", "null", "{"]) assert.equal(jsonObject(wrong), undefined);
});

test("a program names this host, user and vhost, and quotes what could break out", () => {
  const target = { host: "node", port: 5672, user: "a@b", vhost: "/", queue: 'x"y' };
  const text = snippet("pika", target);
  assert.ok(text.includes('"amqp://a%40b:PASSWORD@node:5672/%2F"'));
  assert.ok(text.includes('"x\\"y"'));
});
