import assert from "node:assert/strict";
import { test } from "node:test";
import { changed, href, placeOf } from "../../src/core/place";

test("names go into the query, whatever they are", () => {
  const names = ["/", "..", "a b", "ä&=?#%2F"];
  for (const name of names) {
    const place = placeOf(new URL(href("/queue", { vhost: "/", name }), "http://node"));
    assert.equal(place.path, "/queue");
    assert.equal(place.query.get("name"), name);
  }
});

test("what is empty is not in the address", () => {
  assert.equal(href("/queues", { q: "", sort: undefined }), "/queues");
  assert.equal(changed(new URLSearchParams("q=x&page=2"), { page: undefined }).toString(), "q=x");
});

test("a slash at the end means the same page", () => {
  assert.equal(placeOf(new URL("http://node/queues/")).path, "/queues");
  assert.equal(placeOf(new URL("http://node/")).path, "/");
});
