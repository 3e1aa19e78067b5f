// The keyboard. `g` and a letter go to a page; `j` and `k` walk through rows; `/` goes to the search of the page.

import { signal } from "@preact/signals";
import { go } from "./place";
import { allowedPages } from "./sitemap";

/** How long a `g` waits for its letter. */
const PAIR_MS = 1_200;

export const isHelpOpen = signal(false);
export const isPaletteOpen = signal(false);

type Step = (by: 1 | -1) => void;

const walkers = new Set<Step>();

/** Whoever is told of `j` and `k`. Answers with what takes it away again. */
export function onRowKey(step: Step): () => void {
  walkers.add(step);
  return () => walkers.delete(step);
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

export function startKeys(): void {
  let pairUntil = 0;
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      isPaletteOpen.value = !isPaletteOpen.value;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.timeStamp < pairUntil) {
      pairUntil = 0;
      const page = allowedPages.value.find((it) => it.key === event.key);
      if (page) {
        event.preventDefault();
        go(page.path);
      }
      return;
    }
    if (event.key === "g") pairUntil = event.timeStamp + PAIR_MS;
    else single(event);
  });
}

function single(event: KeyboardEvent): void {
  switch (event.key) {
    case "/": {
      const search = document.querySelector<HTMLElement>("[data-search]");
      if (!search) return;
      event.preventDefault();
      search.focus();
      return;
    }
    case "?":
      isHelpOpen.value = true;
      return;
    case "j":
      for (const step of walkers) step(1);
      return;
    case "k":
      for (const step of walkers) step(-1);
      return;
  }
}
