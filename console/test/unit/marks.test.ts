import assert from "node:assert/strict";
import { test } from "node:test";
import type { Mark, Series } from "../../src/types";
import { dayBefore } from "../../src/ui/history";
import { keyOfTold, together } from "../../src/ui/marks";

const leader = (at: number, group: number, from = "a", to = "b"): Mark => ({
  at,
  kind: "leader",
  group,
  term: 7,
  from,
  to,
  queues: [],
  queue_count: 0,
});

test("leaders that change together are one row, and the newest row is the first", () => {
  const start: Mark = { at: 500, kind: "start", node: "a" };
  const rows = together([
    start,
    leader(1_000, 1),
    leader(1_500, 2),
    leader(1_600, 3, "b", "c"),
    leader(60_000, 1),
  ]);
  assert.deepEqual(
    rows.map(({ at, marks }) => [at, marks.length]),
    [
      [60_000, 1],
      [1_600, 1],
      [1_000, 2],
      [500, 1],
    ],
  );
});

test("rows of the same time have keys of their own", () => {
  const deployment = (text: string): Mark => ({ at: 9, kind: "deployment", text, user: "ann" });
  const start = (node: string): Mark => ({ at: 9, kind: "start", node });
  const rows = together([
    leader(9, 1),
    leader(9, 2, "b", "c"),
    start("a"),
    start("b"),
    deployment("one"),
    deployment("two"),
  ]);
  assert.equal(new Set(rows.map(keyOfTold)).size, 6);
});

test("yesterday is drawn at the times of today, a long point at several of them", () => {
  const day = 86_400_000;
  const series = (from: number, step_ms: number, count: number): Series => ({
    from,
    to: from + step_ms * count,
    step_ms,
    series: {},
    silent: [],
  });
  const now = series(day + 600_000, 100_000, 6);
  const then = series(600_000, 300_000, 2);
  const line = { name: "Ready", colour: 1, values: [5, null] };
  const [drawn] = dayBefore([line], then, now);
  assert.deepEqual(drawn?.values, [5, 5, 5, null, null, null]);
  assert.equal(drawn?.name, "Ready, yesterday");
  assert.equal(drawn?.colour, 1);
});
