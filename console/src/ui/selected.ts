// The rows that somebody selected, in the address as far as they fit there: a link then means the same rows.

import { useMemo, useState } from "preact/hooks";
import { said, show } from "../core/place";

const NAME = "selected";

/** More letters are not put into the address: servers and proxies refuse long ones. */
const LETTERS_MAX = 2_000;

type Keys = ReadonlySet<string>;

/** Keys of rows as a text. What parts a key's names becomes a slash, what parts keys a comma. */
export function selectedText(keys: Keys): string {
  return [...keys]
    .map((key) => key.split("\u0000").map(encodeURIComponent).join("/"))
    .sort()
    .join(",");
}

/** What it was. An address may have been written by hand: what is no key is left out. */
export function selectedOf(text: string): Keys {
  const keys = text.split(",").flatMap((key) => {
    try {
      return key === "" ? [] : [key.split("/").map(decodeURIComponent).join("\u0000")];
    } catch {
      return [];
    }
  });
  return new Set(keys);
}

/** Selected rows, and what selects others. Too many for the address last as long as the page. */
export function useSelected(): [Keys, (keys: Keys) => void] {
  const [many, setMany] = useState<Keys | undefined>(undefined);
  const text = said(NAME);
  const selected = useMemo(() => many ?? selectedOf(text), [many, text]);
  const select = (keys: Keys) => {
    const next = selectedText(keys);
    const fits = next.length <= LETTERS_MAX;
    setMany(fits ? undefined : keys);
    show({ [NAME]: fits ? next : undefined });
  };
  return [selected, select];
}
