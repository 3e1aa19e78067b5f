// The filter of a page, which is in its address. `/` goes to it.

import { useVhosts } from "../core/broker";
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

interface VhostSelectProps {
  value: string;
  /** What the choice of no vhost is called; without it, there is always one. */
  all?: string;
}

/** Chooses a vhost, in the address. */
export function VhostSelect({ value, all }: VhostSelectProps) {
  const options = useVhosts().map((vhost): [string, string] => [vhost, vhost]);
  if (all !== undefined) options.unshift(["", all]);
  return (
    <select
      aria-label={words.vhost}
      value={value}
      onChange={(event) => show({ vhost: event.currentTarget.value })}
    >
      {options.map(([vhost, text]) => (
        <option key={vhost} value={vhost} selected={vhost === value}>
          {text}
        </option>
      ))}
    </select>
  );
}

/** The vhost that a list is of, where there are several. */
export function VhostFilter() {
  if (useVhosts().length < 2) return null;
  return <VhostSelect value={said("vhost")} all={words.allVhosts} />;
}
