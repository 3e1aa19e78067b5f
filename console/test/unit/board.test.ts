import assert from "node:assert/strict";
import { test } from "node:test";
import { Board, TREND_LENGTH } from "../../src/live/board";

const COLUMNS = [
  "id",
  "messages_ready",
  "messages_unacknowledged",
  "consumers",
  "new_number",
  "publish_rate",
];

test("changes are taken by the names of their columns", () => {
  const board = new Board(COLUMNS);
  board.apply({ new: [[7, "/", "orders"]], changed: [[7, 5, 2, 1, 99, 1.5]] });
  const row = board.find("/", "orders");
  assert.ok(row);
  assert.deepEqual(
    [row.ready, row.unacked, row.consumers, row.inRate, row.outRate],
    [5, 2, 1, 1.5, 0],
  );
});

test("rows of unknown queues are passed over, and a leader that is silent is noted", () => {
  const board = new Board(COLUMNS);
  board.apply({ changed: [[8, 1, 1, 1, 1, 1]], gone: [9], down: [10] });
  assert.equal(board.rows.size, 0);
  board.apply({ new: [[7, "/", "orders"]], down: [7] });
  assert.equal(board.find("/", "orders")?.isDown, true);
  board.apply({ changed: [[7, 1, 0, 0, 0, 0]] });
  assert.equal(board.find("/", "orders")?.isDown, false);
});

test("a queue that was made again under its name is the new one", () => {
  const board = new Board(COLUMNS);
  board.apply({ new: [[7, "/", "orders"]] });
  board.apply({ new: [[8, "/", "orders"]], gone: [7] });
  assert.equal(board.find("/", "orders")?.id, 8);
});

test("who paused a queue is told again, and its trend goes on", () => {
  const board = new Board([...COLUMNS, "oldest_ready_at", "ready_bytes"]);
  board.apply({
    new: [[7, "/", "orders", "quorum", null]],
    changed: [[7, 3, 1, 0, 0, 0, 99, null]],
  });
  board.tick();
  board.apply({ new: [[7, "/", "orders", "quorum", "ann"]] });
  const row = board.find("/", "orders");
  assert.deepEqual([row?.type, row?.pausedBy, row?.ready], ["quorum", "ann", 3]);
  assert.deepEqual([row?.oldestAt, row?.bytes, row?.trend.length], [99, null, 1]);
});

test("a trend has so many seconds, and outlasts a broken stream", () => {
  const board = new Board(COLUMNS);
  board.apply({ new: [[7, "/", "orders"]], changed: [[7, 3, 1, 0, 0, 0]] });
  for (let second = 0; second < TREND_LENGTH + 5; second += 1) board.tick();
  const trend = board.find("/", "orders")?.trend;
  assert.equal(trend?.length, TREND_LENGTH);
  const next = new Board(COLUMNS);
  next.apply({ new: [[7, "/", "orders"]] });
  next.inherit(board);
  assert.equal(next.find("/", "orders")?.trend, trend);
});
