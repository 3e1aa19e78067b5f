import assert from "node:assert/strict";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { test } from "node:test";
import {
  BYTES_MAX,
  FILES_MAX,
  base64Of,
  chooseType,
  chosenType,
  files,
  keepFile,
  namedType,
  refusalOf,
  removeFile,
} from "../../src/core/descriptors";
import { bytesOf } from "../../src/core/payload";
import { NoDescriptors, readerOf, typesIn } from "../../src/core/protobuf";
import shop from "./fixtures/shop.binpb";

/** A shop.Order, and a shop.Cancelled, as Google's library for Python writes them. */
const ORDER = bytesOf(
  "CIGAgICAgIAQEgNhbm4aBQoBQRACIgYIwKew2AYoATIuCiJ0eXBlLmdvb2dsZWFwaXMuY29tL3Nob3AuQ2FuY2VsbGVkEggIBxIEbGF0ZToC/wA=",
  "base64",
);
const CANCELLED = bytesOf("CAcSBGxhdGU=", "base64");

test("a payload in Protobuf is JSON by its type, as Google's libraries have it", () => {
  const reader = readerOf([shop]);
  assert.deepEqual(reader.types, ["shop.Cancelled", "shop.Order", "shop.Order.Line"]);
  assert.deepEqual(reader.decode("shop.Order", ORDER), {
    json: {
      number: "9007199254740993",
      customer: "ann",
      lines: [{ sku: "A", count: 2 }],
      placedAt: "2026-11-29T12:00:00Z",
      status: "STATUS_PAID",
      note: { "@type": "type.googleapis.com/shop.Cancelled", number: "7", why: "late" },
      signature: "/wA=",
    },
    unknownFields: 0,
  });
});

test("what is no message of the type says why, and fields that the type lacks are counted", () => {
  const reader = readerOf([shop]);
  const read = (type: string, bytes: Uint8Array) => reader.decode(type, bytes);
  assert.match(read("shop.Order", ORDER.subarray(0, 12)).fault ?? "", /premature EOF/);
  assert.match(read("shop.Order", bytesOf('{"order": 1}', "string")).fault ?? "", /./);
  assert.equal(read("shop.Bill", ORDER).fault, "");
  assert.deepEqual(read("shop.Cancelled", CANCELLED), {
    json: { number: "7", why: "late" },
    unknownFields: 0,
  });
  // Fields 3 to 7 of the order.
  const other = read("shop.Cancelled", ORDER);
  assert.equal(other.fault === undefined && other.unknownFields, 5);
});

test("a file is a whole set of descriptors, or it is refused", () => {
  assert.equal(typesIn(shop).length, 3);
  const refused = (bytes: Uint8Array) => assert.throws(() => typesIn(bytes), NoDescriptors);
  refused(new Uint8Array());
  refused(bytesOf('syntax = "proto3";', "string"));
  refused(shop.subarray(0, 200));
  refused(ORDER);
  // As protoc writes it without --include_imports.
  const set = fromBinary(FileDescriptorSetSchema, shop);
  const alone = create(FileDescriptorSetSchema, { file: set.file.slice(-1) });
  const imports = { message: /google\/protobuf\/timestamp.proto/ };
  assert.throws(() => typesIn(toBinary(FileDescriptorSetSchema, alone)), imports);
});

test("a message names its type in the property type or in a header", () => {
  const { has } = readerOf([shop]);
  assert.equal(namedType({ type: "shop.Order" }, has), "shop.Order");
  assert.equal(
    namedType({ type: "order", headers: { kind: "shop.Cancelled" } }, has),
    "shop.Cancelled",
  );
  const any = "type.googleapis.com/shop.Order";
  assert.equal(namedType({ headers: { n: 7, "proto-type": any } }, has), "shop.Order");
  assert.equal(namedType({ type: "shop.Bill", headers: {} }, has), undefined);
});

test("files are bounded in count and bytes, and one of the same name is replaced", () => {
  keepFile("shop.binpb", shop, 3);
  keepFile("shop.binpb", shop, 3);
  assert.deepEqual(
    files.value.map(({ name, bytes, base64 }) => [name, bytes, base64]),
    [["shop.binpb", shop.length, base64Of(shop)]],
  );
  assert.deepEqual(bytesOf(base64Of(shop), "base64"), Uint8Array.from(shop));
  assert.equal(refusalOf(files.value, "more.binpb", BYTES_MAX), "bytes");
  assert.equal(refusalOf(files.value, "shop.binpb", BYTES_MAX), undefined);
  for (let file = 1; file < FILES_MAX; file += 1) keepFile(`${file}.binpb`, shop, 3);
  assert.equal(refusalOf(files.value, "more.binpb", 1), "files");
  removeFile("1.binpb");
  assert.equal(refusalOf(files.value, "more.binpb", 1), undefined);
});

test("each queue has its type, and a queue of another vhost has another", () => {
  chooseType("/", "orders", "shop.Order");
  chooseType("test", "orders", "shop.Cancelled");
  assert.equal(chosenType("/", "orders"), "shop.Order");
  chooseType("/", "orders", "");
  assert.equal(chosenType("/", "orders"), "");
  assert.equal(chosenType("test", "orders"), "shop.Cancelled");
  for (let queue = 0; queue < 200; queue += 1) chooseType("/", `q${queue}`, "shop.Order");
  assert.equal(chosenType("test", "orders"), "", "of more than 200 the first are forgotten");
  assert.equal(chosenType("/", "q199"), "shop.Order");
});
