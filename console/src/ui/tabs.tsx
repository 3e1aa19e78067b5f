// Parts of a page, of which one is shown: links, so that each has its address.

import { useEffect, useRef } from "preact/hooks";
import { changed, place, said } from "../core/place";

interface Props<Name extends string> {
  label: string;
  tabs: readonly (readonly [Name, string])[];
}

export function currentTab<Name extends string>(tabs: readonly (readonly [Name, string])[]): Name {
  const asked = said("tab");
  const found = tabs.find(([name]) => name === asked) ?? tabs[0];
  if (!found) throw new Error("a page has at least one tab");
  return found[0];
}

/** What a tab says of itself in the address is left behind, but for the thing that the page is about. */
const KEPT = ["vhost", "name"];

export function Tabs<Name extends string>({ label, tabs }: Props<Name>) {
  const now = currentTab(tabs);
  const { path, query } = place.value;
  const of = new URLSearchParams(
    KEPT.flatMap((name) => (query.has(name) ? [[name, query.get(name) ?? ""]] : [])),
  );
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a phone the tabs are wider than the window.
    const box = list.current;
    const tab = box?.querySelector<HTMLElement>("[aria-current]");
    if (box && tab) box.scrollLeft = tab.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2;
  }, [now]);
  return (
    <div ref={list} class="tabs" role="navigation" aria-label={label}>
      {tabs.map(([name, text]) => (
        <a
          key={name}
          href={`${path}?${changed(of, { tab: name })}`}
          aria-current={name === now ? "page" : undefined}
        >
          {text}
        </a>
      ))}
    </div>
  );
}
