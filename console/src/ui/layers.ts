// Dialogs that are open. A browser lets nobody reach what lies below the topmost one, so notices are shown there.

import { computed, signal } from "@preact/signals";

const open = signal<readonly string[]>([]);

/** The dialog on top; none is open without it. */
export const topLayer = computed(() => open.value.at(-1));

/** A dialog lies on all others now. Answers with what takes it away again. */
export function addLayer(id: string): () => void {
  open.value = [...open.value, id];
  return () => {
    open.value = open.value.filter((it) => it !== id);
  };
}
