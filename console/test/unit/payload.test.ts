import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { bytesOf, formsOf, hexOf, jsonOf, messagePackOf, unpacked } from "../../src/core/payload";

const bytes = (...values: number[]) => Uint8Array.from(values);

test("JSON is shown as JSON, other text as text", () => {
  assert.equal(jsonOf(bytesOf('{"a":1}', "string")), '{\n  "a": 1\n}');
  assert.equal(jsonOf(bytesOf("{nothing", "string")), undefined);
  assert.deepEqual(formsOf(bytesOf('["a"]', "string")), ["json", "text", "hex"]);
  assert.deepEqual(formsOf(bytesOf("hello", "string")), ["text", "hex"]);
});

test("bytes come from base64, and are shown in hex", () => {
  const found = bytesOf("AP9B", "base64");
  assert.deepEqual([...found], [0, 255, 65]);
  assert.deepEqual(formsOf(found), ["hex"]);
  assert.equal(hexOf(found), `00000000  ${"00 ff 41".padEnd(47)}  ..A`);
});

test("gzip is taken away, and what only looks like it is left", async () => {
  const packed = await unpacked(gzipSync('{"a":1}'));
  assert.equal(jsonOf(packed.bytes), '{\n  "a": 1\n}');
  assert.ok((packed.packedBytes ?? 0) > 0);
  const broken = bytes(0x1f, 0x8b, 1, 2, 3);
  assert.deepEqual(await unpacked(broken), { bytes: broken, packedBytes: undefined });
});

test("MessagePack is read: maps, arrays, texts, numbers, bytes", () => {
  // {"a": [1, -1, null, true, 1.5, bin 0xff], "b": "ü"}
  const packed = bytes(
    0x82,
    0xa1,
    0x61,
    0x96,
    1,
    0xff,
    0xc0,
    0xc3,
    0xcb,
    0x3f,
    0xf8,
    0,
    0,
    0,
    0,
    0,
    0,
    0xc4,
    1,
    0xff,
    0xa1,
    0x62,
    0xa2,
    0xc3,
    0xbc,
  );
  const shown = JSON.parse(messagePackOf(packed) ?? "null") as unknown;
  assert.deepEqual(shown, { a: [1, -1, null, true, 1.5, "ff"], b: "ü" });
});

test("what is no MessagePack, or not all of it, is not taken for it", () => {
  assert.equal(messagePackOf(bytes(0x81, 0xa1)), undefined);
  assert.equal(messagePackOf(bytes(0x90, 0x90)), undefined);
  assert.equal(messagePackOf(bytes(0xdd, 0xff, 0xff, 0xff, 0xff)), undefined);
  assert.equal(messagePackOf(Uint8Array.from({ length: 5_000 }, () => 0x91)), undefined);
  assert.equal(messagePackOf(bytes(7)), undefined, "a bare number may be anything");
});
