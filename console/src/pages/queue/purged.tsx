// Purges a queue so that it can be undone for a minute, and offers that to whoever looks at the queue.

import { change, path, withAsked } from "../../core/api";
import { useOverview } from "../../core/broker";
import * as format from "../../core/format";
import { mayPurge } from "../../core/session";
import { now } from "../../core/visible";
import type { Queue } from "../../types";
import { useAct } from "../../ui/act";
import { tell } from "../../ui/notice";
import { words } from "../../words";

const TEXTS = words.queue.purge;

/** For so long a purge of the console can be undone. */
export const UNDO_MS = 60_000;

/** From this version of the cluster on a purge can be undone. */
const UNDO_SINCE = 10;

interface Named {
  vhost: string;
  name: string;
}

interface Told {
  messages: number;
}

/** Whether a purge can be undone: not while a node of the cluster runs an older program. */
export function useUndo(): boolean {
  const { data } = useOverview();
  return data === undefined || data.cluster_version >= UNDO_SINCE;
}

/** `isUndoable`: for a minute. The node says how many messages went only then. */
export function purge({ vhost, name }: Named, isUndoable: boolean): Promise<Told | undefined> {
  const undo_ms = isUndoable ? UNDO_MS : undefined;
  const to = withAsked(path("queues", vhost, name, "contents"), { undo_ms });
  return change<Told | undefined>("DELETE", to);
}

export function unpurge({ vhost, name }: Named): Promise<Told> {
  return change<Told>("POST", path("millrace", "queues", vhost, name, "unpurge"), {});
}

/** What was purged, and can be brought back. */
export function Purged({ queue }: { queue: Queue }) {
  const { isBusy, run } = useAct();
  const { withheld = 0, withheld_until } = queue.millrace ?? {};
  // The node says how long; this machine's clock may be another.
  if (!withheld) return null;
  const leftMs = Math.max(0, (withheld_until ?? 0) - now.value);
  const counted = (count: number) => format.counted(count, words.message, words.messages);
  const undo = () =>
    run(async () => {
      const { messages } = await unpurge(queue);
      tell(messages > 0 ? TEXTS.undone(counted(messages)) : TEXTS.tooLate);
    });
  return (
    <p class="offer" role="status">
      <span>{TEXTS.canBeUndone(counted(withheld), format.duration(leftMs))}</span>
      {mayPurge(queue.vhost, queue.name) && (
        <button type="button" class="primary" disabled={isBusy} onClick={() => void undo()}>
          {TEXTS.undo}
        </button>
      )}
    </p>
  );
}
