import assert from "node:assert/strict";
import { test } from "node:test";
import { after, type OverviewEvent } from "../../src/live/totals";

const told = (publish: number): OverviewEvent => ({
  alarms: [],
  object_totals: {},
  message_stats: { publish },
});

test("a rate is what came between two events", () => {
  const first = after(undefined, told(100), 1_000);
  assert.equal(first.rates.publish, 0);
  const second = after(first, told(150), 3_000);
  assert.equal(second.rates.publish, 25);
  assert.deepEqual(second.trends.publish, [25]);
});

test("a node that counts from 0 again makes no negative rate", () => {
  const second = after(after(undefined, told(100), 1_000), told(3), 2_000);
  assert.equal(second.rates.publish, 0);
});
