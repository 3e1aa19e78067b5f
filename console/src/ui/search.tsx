// The filter of a page, which is in its address. `/` goes to it.

import { said, show } from "../core/place";
import { words } from "../words";

export const filterText = (): string => said("q");

/** Whether a text has all words of the filter in it, in any case. */
export function matches(filter: string, ...texts: (string | null | undefined)[]): boolean {
  const parts = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const all = texts.join("\u0000").toLowerCase();
  return parts.every((part) => all.includes(part));
}

export function Search({ label }: { label: string }) {
  return (
    <input
      type="search"
      class="search"
      data-search
      aria-label={label}
      placeholder={words.table.search(label)}
      value={filterText()}
      onInput={(event) => show({ q: event.currentTarget.value, page: undefined })}
      onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
    />
  );
}

/** The vhost that a list is of, where there are several. */
export function VhostFilter({ vhosts }: { vhosts: readonly string[] }) {
  if (vhosts.length < 2) return null;
  return (
    <select
      aria-label={words.vhost}
      value={said("vhost")}
      onChange={(event) => show({ vhost: event.currentTarget.value })}
    >
      <option value="">{words.allVhosts}</option>
      {vhosts.map((vhost) => (
        <option key={vhost} value={vhost} selected={vhost === said("vhost")}>
          {vhost}
        </option>
      ))}
    </select>
  );
}
