import assert from "node:assert/strict";
import { test } from "node:test";
import { orderText, parseOrder, pressed, sorted } from "../../src/ui/order";

test("an order is read as it was written", () => {
  for (const text of ["", "name", "-ready,name"]) assert.equal(orderText(parseOrder(text)), text);
  assert.deepEqual(parseOrder("-,,x"), [{ id: "x", isDown: false }]);
});

test("a click sorts by a column, a second one turns it round, and shift adds one", () => {
  const first = pressed([], "ready", true, false);
  assert.equal(orderText(first), "-ready");
  const second = pressed(first, "ready", true, false);
  assert.equal(orderText(second), "ready");
  assert.equal(orderText(pressed(second, "name", false, true)), "ready,name");
  assert.equal(orderText(pressed(second, "name", false, false)), "name");
});

test("rows are sorted by all keys, names by their numbers, and what is not known comes last", () => {
  const rows = [
    { name: "q10", depth: 1 },
    { name: "q9", depth: undefined },
    { name: "q2", depth: 5 },
    { name: "q1", depth: 1 },
  ];
  const by = (id: string, row: (typeof rows)[number]) => (id === "name" ? row.name : row.depth);
  const names = (order: string) => sorted(rows, parseOrder(order), by).map(({ name }) => name);
  assert.deepEqual(names("name"), ["q1", "q2", "q9", "q10"]);
  assert.deepEqual(names("-depth,name"), ["q2", "q1", "q10", "q9"]);
  assert.deepEqual(names("depth,-name"), ["q10", "q1", "q2", "q9"]);
  assert.deepEqual(names(""), ["q10", "q9", "q2", "q1"]);
});
