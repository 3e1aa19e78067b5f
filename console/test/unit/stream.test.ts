import assert from "node:assert/strict";
import { test } from "node:test";
import { standing } from "../../src/core/session";
import { problems, startStream } from "../../src/live/stream";

/** An event source that tells what a test wants. */
class Source extends EventTarget {
  static last: Source | undefined;
  onerror: () => void = () => undefined;

  constructor() {
    super();
    Source.last = this;
  }

  close(): void {
    this.onerror = () => undefined;
  }

  tell(name: string, data: unknown): void {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  }
}

test("what was told of problems counts no more once the stream is broken", () => {
  const nobody = new Response("{}", { status: 401 });
  Object.assign(globalThis, { EventSource: Source, fetch: () => Promise.resolve(nobody) });
  standing.value = { user: "ann", tags: ["monitoring"], csrf: "" };
  startStream();
  assert.ok(Source.last);
  Source.last.tell("problems", { verdict: "ok", problems: [], left_out: 0, silent: [] });
  assert.equal(problems.value?.verdict, "ok");
  Source.last.onerror();
  assert.equal(problems.value, undefined);
  standing.value = "nobody";
});
