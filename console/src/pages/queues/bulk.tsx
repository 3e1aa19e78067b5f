// What is done to several queues at once. What destroys shows how much it is, and a sample, and asks for the number.

import { useState } from "preact/hooks";
import { Refused, change, path } from "../../core/api";
import { role } from "../../core/session";
import { messagesOf, type QueueRow } from "../../live/board";
import { useAct } from "../../ui/act";
import { Confirm } from "../../ui/confirm";
import { reasonOf } from "../../ui/notice";
import { words } from "../../words";

const TEXTS = words.queues.bulk;

const SAMPLE = 8;

type Destroying = "purge" | "delete";

const pausePath = ({ vhost, name }: QueueRow) => path("millrace", "queues", vhost, name, "pause");

const ACTS: Record<"pause" | "resume" | Destroying, (queue: QueueRow) => Promise<unknown>> = {
  pause: (queue) => change("PUT", pausePath(queue)),
  resume: (queue) => change("DELETE", pausePath(queue)),
  purge: ({ vhost, name }) => change("DELETE", path("queues", vhost, name, "contents")),
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

export function Bulk({ queues, onDone }: { queues: readonly QueueRow[]; onDone: () => void }) {
  const [destroying, setDestroying] = useState<Destroying | undefined>(undefined);
  const { isBusy, run } = useAct();
  const count = queues.length;
  const messages = queues.reduce((sum, queue) => sum + messagesOf(queue), 0);
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
          act={() => forEach(queues, ACTS[destroying])}
          onClose={() => setDestroying(undefined)}
          onDone={onDone}
        >
          <p>{TEXTS.sum(queues.length, messages)}</p>
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
