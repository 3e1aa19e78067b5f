// A worker that several nodes are told of is one worker: it is shown once, with all who asked it.

import type { Companion } from "./told";

/** Addresses of the machine that asks: at another node they are another process. */
const LOOPBACK = /^(127\.|localhost:|\[::1\])/;

function isSame(one: Companion, other: Companion): boolean {
  if (one.address !== other.address || one.kind !== other.kind) return false;
  if (one.status === null || other.status === null) return false;
  return !LOOPBACK.test(one.address);
}

/** `by`: the nodes that asked it. What is said is what the first of them was told. */
export type Merged = Companion & { by: string[] };

export function merged(all: readonly Companion[]): Merged[] {
  const found: Merged[] = [];
  for (const it of all) {
    const known = found.find((other) => isSame(other, it));
    if (known) known.by.push(it.node);
    else found.push({ ...it, by: [it.node] });
  }
  return found;
}
