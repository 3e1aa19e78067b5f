// Which dead letters the desk shows: by a text and by a reason, both in the address.

import { said, show } from "../../core/place";
import { matches } from "../../ui/search";
import { words } from "../../words";
import type { Which } from "./retry";

const TEXTS = words.dead;

/** What a row of dead letters is found by. */
interface Died {
  died_in: string | null;
  reason: string | null;
}

export interface Filter {
  text: string;
  /** As the node says it; empty: each. */
  reason: string;
}

export const filterOf = (): Filter => ({ text: said("q"), reason: said("reason") });

/** The reason in words that people read. */
export function reasonText(reason: string | null): string {
  const texts: Record<string, string> = TEXTS.reasons;
  return texts[reason ?? ""] ?? reason ?? TEXTS.unknownReason;
}

/** `names`: more texts of the row in which the filter looks. */
export function fits({ text, reason }: Filter, it: Died, ...names: string[]): boolean {
  if (reason !== "" && it.reason !== reason) return false;
  return matches(text, it.died_in, it.reason, reasonText(it.reason), ...names);
}

/** What a retry of some groups of a queue is told. `undefined`: it cannot be told of just these. */
export function whichOf<Group extends Died>(
  all: readonly Group[],
  shown: readonly Group[],
): Pick<Which, "reason" | "died_in"> | undefined {
  if (shown.length === all.length) return {};
  const [first] = shown;
  if (!first) return undefined;
  const { reason, died_in } = first;
  if (reason === null) return undefined;
  if (shown.length === 1) return died_in === null ? undefined : { reason, died_in };
  const alike = all.filter((it) => it.reason === reason);
  const isOneReason = alike.length === shown.length && shown.every((it) => alike.includes(it));
  return isOneReason ? { reason } : undefined;
}

export function ReasonFilter() {
  const { reason } = filterOf();
  const known = Object.entries(TEXTS.reasons);
  const isKnown = reason === "" || known.some(([name]) => name === reason);
  const options = isKnown ? known : [...known, [reason, reason] as const];
  return (
    <select
      aria-label={TEXTS.heads.reason}
      value={reason}
      onChange={(event) => show({ reason: event.currentTarget.value })}
    >
      <option value="">{TEXTS.anyReason}</option>
      {options.map(([name, text]) => (
        <option key={name} value={name} selected={name === reason}>
          {text}
        </option>
      ))}
    </select>
  );
}
