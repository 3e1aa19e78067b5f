// Whether anybody can see the tab, and what time it is: both change the page without anything being asked.

import { signal } from "@preact/signals";

export const isVisible = signal(true);

/** Moves once a second while the tab is visible. */
export const now = signal(Date.now());

export function startClock(): void {
  const look = () => {
    isVisible.value = document.visibilityState === "visible";
  };
  look();
  document.addEventListener("visibilitychange", look);
  setInterval(() => {
    if (isVisible.peek()) now.value = Date.now();
  }, 1000);
}
