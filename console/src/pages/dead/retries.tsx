// Retries that run, and the last that ran.

import { change, path } from "../../core/api";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import type { Retry } from "../../types";
import { useAct } from "../../ui/act";
import { Card, QueueLink } from "../../ui/parts";
import { words } from "../../words";
import { RetryResult } from "./retry";

const TEXTS = words.dead;

/** So many of them: the node lists 50. */
const RETRIES_MAX = 5;

export function Retries() {
  const { data } = useQuery<Retry[]>("/millrace/retries", 3_000);
  const shown = (data ?? []).filter((it) => !it.dry_run);
  if (shown.length === 0) return null;
  return (
    <Card title={TEXTS.running}>
      {shown.slice(0, RETRIES_MAX).map((retry) => (
        <RetryRow key={retry.id} retry={retry} />
      ))}
    </Card>
  );
}

/** Whether all that was meant was sent: then there is no more to tell. */
const isWhole = ({ state, stay, gone }: Retry): boolean => state === "done" && stay + gone === 0;

function RetryRow({ retry }: { retry: Retry }) {
  const { isBusy, run } = useAct();
  const stop = () =>
    run(() => change("DELETE", path("millrace", "retries", retry.id)), TEXTS.stopped);
  return (
    <article class="retry">
      <p>
        <QueueLink vhost={retry.vhost} name={retry.queue} /> {TEXTS.states[retry.state]}{" "}
        {TEXTS.sent(retry.sent, retry.user)}
        {retry.state === "running" && role.value.changes && (
          <button type="button" class="small danger" disabled={isBusy} onClick={() => void stop()}>
            {TEXTS.stop}
          </button>
        )}
      </p>
      {!isWhole(retry) && <RetryResult retry={retry} />}
    </article>
  );
}
