import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../../src/core/format";

test("numbers are grouped, and what is not known is a dash", () => {
  assert.equal(format.count(1234567), "1,234,567");
  assert.equal(format.count(0), "0");
  assert.equal(format.count(undefined), format.NOTHING);
  assert.equal(format.count(null), format.NOTHING);
});

test("small rates have a tenth, large ones have none", () => {
  assert.equal(format.rate(12.34), "12.3");
  assert.equal(format.rate(1234.5), "1,235");
});

test("a change has its sign", () => {
  assert.equal(format.change(5), "+5");
  assert.equal(format.change(-2.5), "−2.5");
  assert.equal(format.change(0.01), "0");
});

test("bytes have the unit that fits", () => {
  assert.equal(format.bytes(0), "0 B");
  assert.equal(format.bytes(1023), "1,023 B");
  assert.equal(format.bytes(1536), "1.5 KiB");
  assert.equal(format.bytes(200 * 1024 ** 3), "200 GiB");
});

test("a duration has two units at most", () => {
  assert.equal(format.duration(250), "250 ms");
  assert.equal(format.duration(59_000), "59 s");
  assert.equal(format.duration(3_600_000), "1 h");
  assert.equal(format.duration(2 * 86_400_000 + 3 * 3_600_000 + 59_000), "2 d 3 h");
  assert.equal(format.duration(-5), "0 ms");
});

test("a time says its offset", () => {
  const at = new Date(2026, 10, 28, 18, 3, 7);
  assert.match(format.time(at.getTime()), /^2026-11-28 18:03:07 [+−]\d\d:\d\d$/);
  assert.equal(format.clock(at.getTime()), "18:03");
  assert.equal(format.clock(new Date(2026, 10, 29).getTime()), "2026-11-29");
});
