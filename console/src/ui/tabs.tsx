// Parts of a page, of which one is shown: links, so that each has its address.

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
  return (
    <div class="tabs" role="navigation" aria-label={label}>
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
