// What is done to several queues at once. What destroys shows how much it is, and a sample, and asks for the number.

import { useState } from "preact/hooks";
import { Refused, change, path } from "../../core/api";
import * as format from "../../core/format";
import { role } from "../../core/session";
import { messagesOf, type QueueRow } from "../../live/board";
import { useAct } from "../../ui/act";
import { Confirm } from "../../ui/confirm";
import { reasonOf, tell } from "../../ui/notice";
import { words } from "../../words";
import { purge, unpurge, useUndo } from "../queue/purged";
import { type Purged, offerOf } from "./undo";

const TEXTS = words.queues.bulk;

const SAMPLE = 8;

type Destroying = "purge" | "delete";

const pausePath = ({ vhost, name }: QueueRow) => path("millrace", "queues", vhost, name, "pause");

const ACTS: Record<"pause" | "resume" | "delete", (queue: QueueRow) => Promise<unknown>> = {
  pause: (queue) => change("PUT", pausePath(queue)),
  resume: (queue) => change("DELETE", pausePath(queue)),
  delete: ({ vhost, name }) => change("DELETE", path("queues", vhost, name)),
};

/**
 * One after the other: a node works on few changes at a time, and others wait for theirs. What is refused, such as the
 * purge of a stream, does not keep the others from being done.
 */
async function forEach(
  queues: readonly QueueRow[],
  act: (queue: QueueRow) => Promise<unknown>,
): Promise<void> {
  const refused: string[] = [];
  for (const queue of queues) {
    await act(queue).catch((error: unknown) => refused.push(`${queue.name}: ${reasonOf(error)}`));
  }
  const [first] = refused;
  if (first !== undefined)
    throw new Refused(0, TEXTS.refused(refused.length, queues.length, first));
}

/** Purges them, and offers to undo it for those in which there was something. */
async function purgeAll(
  queues: readonly QueueRow[],
  isUndoable: boolean,
  undo: (of: Purged[]) => void,
) {
  const purged: Purged[] = [];
  try {
    await forEach(queues, async (queue) => {
      const askedMs = performance.now();
      const told = await purge(queue, isUndoable);
      if (told) purged.push({ queue, messages: told.messages, askedMs });
    });
  } finally {
    const offer = offerOf(purged, performance.now());
    if (offer) {
      const { of, messages, leftMs } = offer;
      const text = TEXTS.undo.text(messages, of.length, format.duration(leftMs));
      tell(text, false, { verb: TEXTS.undo.verb, run: () => undo(of), forMs: leftMs });
    }
  }
}

/** Brings messages back, and tells how many have come. */
async function unpurgeAll(purged: readonly Purged[]): Promise<void> {
  let [messages, queues] = [0, 0];
  const undone = purged.map(({ queue }) => queue);
  await forEach(undone, async (queue) => {
    const told = await unpurge(queue);
    messages += told.messages;
    queues += told.messages > 0 ? 1 : 0;
  });
  tell(messages > 0 ? TEXTS.undo.done(messages, queues) : words.queue.purge.tooLate);
}

export function Bulk({ queues, onDone }: { queues: readonly QueueRow[]; onDone: () => void }) {
  const [destroying, setDestroying] = useState<Destroying | undefined>(undefined);
  const { isBusy, run } = useAct();
  const count = queues.length;
  const messages = queues.reduce((sum, queue) => sum + messagesOf(queue), 0);
  const isUndoable = useUndo();
  const undo = (purged: Purged[]) => void run(() => unpurgeAll(purged));
  const destroy = (how: Destroying) =>
    how === "purge" ? purgeAll(queues, isUndoable, undo) : forEach(queues, ACTS[how]);
  const at = (act: keyof typeof ACTS) => async () => {
    if (await run(() => forEach(queues, ACTS[act]), TEXTS.done[act](count))) onDone();
  };
  return (
    <div class="bulk" role="region" aria-label={TEXTS.title(count)}>
      <strong>{TEXTS.title(count)}</strong>
      {role.value.makesPolicies && (
        <>
          <button type="button" disabled={isBusy} onClick={() => void at("pause")()}>
            {TEXTS.verbs.pause}
          </button>
          <button type="button" disabled={isBusy} onClick={() => void at("resume")()}>
            {TEXTS.verbs.resume}
          </button>
        </>
      )}
      <button type="button" class="danger" disabled={isBusy} onClick={() => setDestroying("purge")}>
        {TEXTS.verbs.purge}
      </button>
      <button
        type="button"
        class="danger"
        disabled={isBusy}
        onClick={() => setDestroying("delete")}
      >
        {TEXTS.verbs.delete}
      </button>
      <button type="button" class="quiet" onClick={onDone}>
        {TEXTS.clear}
      </button>
      {destroying && (
        <Confirm
          title={TEXTS.confirm[destroying](count)}
          name={TEXTS.typed(count)}
          verb={TEXTS.verbs[destroying]}
          done={TEXTS.done[destroying](count)}
          act={() => destroy(destroying)}
          onClose={() => setDestroying(undefined)}
          onDone={onDone}
        >
          <p>{TEXTS.sum(queues.length, messages)}</p>
          {destroying === "purge" && <p>{words.queue.purge.undoText(isUndoable)}</p>}
          <QueueSample queues={queues} />
        </Confirm>
      )}
    </div>
  );
}

/** The first of the queues, and how many more there are. */
export function QueueSample({ queues }: { queues: readonly QueueRow[] }) {
  return (
    <>
      <ul>
        {queues.slice(0, SAMPLE).map((queue) => (
          <li key={queue.id}>
            <code>{queue.name}</code> {words.messageCount(messagesOf(queue))}
          </li>
        ))}
      </ul>
      {queues.length > SAMPLE && <p class="dim">{words.andMore(queues.length - SAMPLE)}</p>}
    </>
  );
}
