// A relay, which publishes an outbox, and an inbox, which stores a queue in a table.

import * as format from "../../core/format";
import { Facts } from "../../ui/parts";
import { words } from "../../words";
import type { InboxStatus, RelayStatus } from "./told";

const TEXTS = words.companions;
const { facts } = TEXTS;

/** How fast a total of the companion grows. */
export type RateOf = (name: string, total: number) => number | undefined;

/** Counts by their reason, those that there are. */
const counts = (of: Record<string, number>): string => {
  const some = Object.entries(of).filter(([, count]) => count > 0);
  return some.map(([reason, count]) => `${reason}: ${format.count(count)}`).join(", ");
};

export function Relay({ status: it, rate }: { status: RelayStatus; rate: RateOf }) {
  const [failed, dead] = [counts(it.failed), counts(it.dead)];
  return (
    <>
      <Facts
        isBig
        of={[
          [facts.backlog, format.count(it.backlog_rows)],
          [facts.oldest, it.backlog_rows === 0 ? format.NOTHING : seconds(it.oldest_age_s)],
          [facts.confirmedRate, format.rate(rate("confirmed", it.confirmed))],
          [facts.parked, format.count(it.parked_rows)],
          [facts.deadRows, format.count(it.dead_rows)],
        ]}
      />
      <Facts
        of={[
          [facts.confirmed, format.count(it.confirmed)],
          [facts.bytes, format.bytes(it.confirmed_bytes)],
          [facts.failed, failed === "" ? words.none : failed],
          [facts.dead, dead === "" ? words.none : dead],
          ...(it.slot_lag_bytes > 0
            ? [[facts.slotLag, format.bytes(it.slot_lag_bytes)] as const]
            : []),
        ]}
      />
      {it.last_failure !== null && (
        <p>
          <strong>{facts.lastFailure}</strong> {it.last_failure}
        </p>
      )}
    </>
  );
}

export function Inbox({ status: it, rate }: { status: InboxStatus; rate: RateOf }) {
  return (
    <Facts
      of={[
        [facts.queued, it.queued < 0 ? format.NOTHING : format.count(it.queued)],
        [facts.unacked, format.count(it.unacked)],
        [facts.storedRate, format.rate(rate("stored", it.stored))],
        [facts.stored, format.count(it.stored)],
        [facts.duplicates, format.count(it.duplicates)],
        [facts.rejected, format.count(it.rejected)],
      ]}
    />
  );
}

export const seconds = (of: number): string => format.duration(of * 1000);
