// Purges or deletes a queue, after showing how much goes, and a sample of it.

import { change, path, withAsked } from "../../core/api";
import * as format from "../../core/format";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import type { Messages, Queue } from "../../types";
import { Confirm } from "../../ui/confirm";
import { words } from "../../words";
import { purge, useUndo } from "./purged";

interface Props {
  queue: Queue;
  how: "purge" | "delete";
  onClose: () => void;
  onDone: () => void;
}

export function Destroy({ queue, how, onClose, onDone }: Props) {
  const texts = words.queue[how];
  const { vhost, name } = queue;
  const isUndoable = useUndo();
  const act = (): Promise<unknown> =>
    how === "purge" ? purge(queue, isUndoable) : change("DELETE", path("queues", vhost, name));
  return (
    <Confirm
      title={texts.title(name)}
      name={name}
      verb={texts.verb}
      done={texts.done(name)}
      act={act}
      onClose={onClose}
      onDone={onDone}
    >
      <p>
        {texts.count(
          format.counted(queue.messages_ready ?? 0, words.message, words.messages),
          format.counted(queue.messages_unacknowledged ?? 0, words.message, words.messages),
          queue.consumers ?? 0,
        )}
      </p>
      {how === "purge" && <p>{words.queue.purge.undoText(isUndoable)}</p>}
      {role.value.peeks && <Sample vhost={vhost} name={name} />}
    </Confirm>
  );
}

function Sample({ vhost, name }: { vhost: string; name: string }) {
  const { data } = useQuery<Messages>(
    withAsked(path("queues", vhost, name, "messages"), {
      state: "ready",
      count: 3,
      truncate: 120,
    }),
  );
  const items = data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <>
      <p>{words.queue.sample}</p>
      <ul class="sample">
        {items.map((message) => (
          <li key={message.position}>
            <code>{message.payload}</code>
          </li>
        ))}
      </ul>
    </>
  );
}
