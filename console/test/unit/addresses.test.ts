import assert from "node:assert/strict";
import { test } from "node:test";
import { path, withAsked } from "../../src/core/api";
import { merged } from "../../src/pages/companions/merged";
import type { Companion } from "../../src/pages/companions/told";
import { fits, whichOf } from "../../src/pages/dead/filter";
import { selectedOf, selectedText } from "../../src/ui/selected";

test("a path that a browser would change is in the query", () => {
  assert.equal(path("queues", "/", "a b"), "/queues/%2F/a%20b");
  assert.equal(path("queues", "/", "..."), "/queues/%2F/...");
  assert.equal(path("queues", "/", ".."), "/millrace/at?path=%2Fqueues%2F%252F%2F..");
  const asked = withAsked(path("queues", ".", "x"), { count: 3, from: "" });
  assert.equal(asked, "/millrace/at?path=%2Fqueues%2F.%2Fx&count=3");
  assert.equal(withAsked("/queues", { count: 3 }), "/queues?count=3");
});

test("selected rows come back from the address, whatever they are called", () => {
  const keys = new Set(["/\u0000orders", "a,b\u0000..", "%\u0000x/y", "17"]);
  assert.deepEqual(selectedOf(selectedText(keys)), keys);
  assert.equal(selectedText(new Set(["/\u0000b", "/\u0000a"])), "%2F/a,%2F/b", "in one order");
  assert.deepEqual(selectedOf(""), new Set());
  assert.deepEqual(selectedOf("%,ok"), new Set(["ok"]), "what is no key is left out");
});

const group = (died_in: string | null, reason: string | null) => ({ died_in, reason });

test("dead letters are filtered by reason, and by texts as people and as the node say them", () => {
  const rejected = group("orders", "rejected");
  const by = (text: string, reason = "") => fits({ text, reason }, rejected, "orders.dead", "/");
  assert.ok(by("") && by("ORDERS") && by("by a consumer") && by("rejected dead"));
  assert.ok(by("", "rejected") && !by("", "expired") && !by("bills"));
  assert.ok(fits({ text: "not told", reason: "" }, group(null, null)));
});

test("a retry is told of just the groups that are shown, or of none", () => {
  const [one, other, third] = [
    group("a", "rejected"),
    group("b", "rejected"),
    group("a", "expired"),
  ];
  const all = [one, other, third];
  assert.deepEqual(whichOf(all, all), {});
  assert.deepEqual(whichOf(all, [other]), { reason: "rejected", died_in: "b" });
  assert.deepEqual(whichOf(all, [one, other]), { reason: "rejected" });
  assert.equal(whichOf(all, [one, third]), undefined);
  assert.equal(whichOf(all, []), undefined);
  // A retry without a reason would be one of all reasons.
  const unknown = [group("a", null), group(null, "rejected")];
  const mixed = [...all, ...unknown];
  for (const it of unknown) assert.equal(whichOf(mixed, [it]), undefined);
  assert.deepEqual(whichOf([group("a", null)], [group("a", null)]), {});
});

test("a worker that several nodes ask is one, unless each asks its own machine", () => {
  const told = (node: string, address: string) =>
    ({ node, address, at: 1, error: null, kind: "worker", status: {} }) as unknown as Companion;
  const shown = (address: string) =>
    merged([told("a", address), told("b", address), told("a", "10.0.0.8:1")]).map((it) => it.by);
  assert.deepEqual(shown("10.0.0.7:9190"), [["a", "b"], ["a"]]);
  for (const own of ["127.0.0.1:9190", "localhost:9190", "[::1]:9190"])
    assert.deepEqual(shown(own), [["a"], ["b"], ["a"]]);
  const silent = { ...told("a", "10.0.0.7:1"), kind: null, status: null, error: "refused" };
  assert.equal(merged([silent, { ...silent, node: "b" }] as Companion[]).length, 2);
});
