// What is offered after a purge of several queues.

import type { QueueRow } from "../../live/board";
import { UNDO_MS } from "../queue/purged";

/** A queue that was purged so that it can be undone. */
export interface Purged {
  queue: QueueRow;
  messages: number;
  /** When that was asked, by the browser's steady clock. */
  askedMs: number;
}

/** Which purges can be undone, and for how long all of them can. `undefined`: there is nothing to bring back. */
export function offerOf(
  purged: readonly Purged[],
  nowMs: number,
): { of: Purged[]; messages: number; leftMs: number } | undefined {
  const of = purged.filter(({ messages, askedMs }) => messages > 0 && nowMs < askedMs + UNDO_MS);
  if (of.length === 0) return undefined;
  const messages = of.reduce((sum, it) => sum + it.messages, 0);
  const firstMs = Math.min(...of.map(({ askedMs }) => askedMs));
  return { of, messages, leftMs: firstMs + UNDO_MS - nowMs };
}
