// Where one is: the path names the page, the query names the thing and says how it is shown. Names are never part
// of the path: a queue may be called `..`, and a vhost is called `/`, which proxies and browsers rewrite in paths.

import { computed, signal } from "@preact/signals";

export interface Place {
  path: string;
  query: URLSearchParams;
}

export type Changes = Record<string, string | number | undefined>;

export function placeOf(url: URL): Place {
  return { path: url.pathname.replace(/\/+$/, "") || "/", query: url.searchParams };
}

/** The address of a page. What is `undefined` or empty is left out. */
export function href(path: string, changes: Changes = {}): string {
  return withQuery(path, changed(new URLSearchParams(), changes));
}

/** The query with some values changed: `undefined` and empty take a value away. */
export function changed(query: URLSearchParams, changes: Changes): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") next.delete(name);
    else next.set(name, String(value));
  }
  return next;
}

function withQuery(path: string, query: URLSearchParams): string {
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

const current = signal<Place>({ path: "/", query: new URLSearchParams() });

export const place = computed(() => current.value);

function read(): void {
  current.value = placeOf(new URL(location.href));
}

export function go(to: string): void {
  history.pushState(null, "", to);
  read();
  scrollTo(0, 0);
}

/** Changes how the page is shown. Typing into a filter makes one step in the history, not one for each letter. */
export function show(changes: Changes, how: "push" | "replace" = "replace"): void {
  const { path, query } = current.value;
  const to = withQuery(path, changed(query, changes));
  if (how === "push") history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  read();
}

/** A value of the query. */
export function said(name: string): string {
  return current.value.query.get(name) ?? "";
}

/** Links within the console change the page without loading it again. */
export function startPlaces(): void {
  read();
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey
    )
      return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (
      !link ||
      link.target !== "" ||
      link.hasAttribute("download") ||
      link.origin !== location.origin
    )
      return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
