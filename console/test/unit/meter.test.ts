import assert from "node:assert/strict";
import { test } from "node:test";
import { Meter } from "../../src/core/meter";

test("a rate is what came between two answers, and the same answer says the same", () => {
  const meter = new Meter();
  assert.equal(meter.of("a", 10, 1_000), undefined);
  assert.equal(meter.of("a", 30, 3_000), 10);
  assert.equal(meter.of("a", 30, 3_000), 10);
  assert.equal(meter.of("b", 5, 3_000), undefined);
  assert.equal(meter.of("a", 2, 4_000), undefined, "it was started again");
  assert.equal(meter.of("a", 4, 5_000), 2);
});
