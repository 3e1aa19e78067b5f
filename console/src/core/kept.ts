// What this browser remembers: the theme, views that somebody saved, and descriptors (`descriptors.ts`). Never anything
// of the broker.

import { effect, signal, type Signal } from "@preact/signals";

export function keptSignal<Value>(
  name: string,
  otherwise: Value,
  is: (value: unknown) => value is Value,
): Signal<Value> {
  let found: unknown = otherwise;
  try {
    found = JSON.parse(localStorage.getItem(name) ?? "null");
  } catch {
    // The browser keeps nothing for this site, or something else wrote there.
  }
  const kept = signal(is(found) ? found : otherwise);
  let isKnown = true;
  effect(() => {
    const { value } = kept;
    // What was found there need not be written again.
    if (isKnown) {
      isKnown = false;
      return;
    }
    try {
      localStorage.setItem(name, JSON.stringify(value));
    } catch {
      // The choice then lasts as long as the tab.
    }
  });
  return kept;
}

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const isTheme = (value: unknown): value is Theme => THEMES.some((theme) => theme === value);

export const theme = keptSignal<Theme>("millrace.theme", "system", isTheme);

/** What the browser's user prefers, which the system theme follows. */
export const prefersDark = signal(false);

export function startTheme(): void {
  const preference = matchMedia("(prefers-color-scheme: dark)");
  const look = () => {
    prefersDark.value = preference.matches;
  };
  look();
  preference.addEventListener("change", look);
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
  });
}

/** A place that somebody gave a name. */
export interface View {
  name: string;
  to: string;
}

const isView = (value: unknown): value is View => {
  const view = value as Partial<View> | null;
  return typeof view?.name === "string" && typeof view.to === "string" && view.to.startsWith("/");
};

const isViews = (value: unknown): value is View[] => Array.isArray(value) && value.every(isView);

export const views = keptSignal<View[]>("millrace.views", [], isViews);
