// The desk for dead letters: what died where and why, and sending it back.

import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import * as format from "../core/format";
import { href, said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { now } from "../core/visible";
import type { DeadGroup, DeadLetters as Told, Queue, Retry } from "../types";
import { useAct } from "../ui/act";
import { Card, Head, Loaded, QueueLink, Tag } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { RetryDialog, RetryResult } from "./dead/retry";

const TEXTS = words.dead;
const { heads } = TEXTS;

type DeadQueue = Pick<Queue, "name" | "vhost" | "messages_ready">;

const QUEUES = "/millrace/dead-letter-queues?columns=name,vhost,messages_ready";

export function DeadLetters() {
  const query = useQuery<DeadQueue[]>(QUEUES, 10_000);
  return (
    <>
      <Head title={words.pages.dead} />
      <Loaded of={query} what={words.pages.dead}>
        {(queues) => <Desk queues={queues} />}
      </Loaded>
      <Everywhere />
      <Retries />
    </>
  );
}

/** Dead letters of all queues. */
interface DeadEverywhere {
  groups: {
    vhost: string;
    /** Where they lie. */
    queue: string;
    died_in: string | null;
    reason: string | null;
    messages: number;
    oldest_at: number | null;
    newest_at: number | null;
  }[];
  /** False: there are more than these. */
  complete: boolean;
}

type Anywhere = DeadEverywhere["groups"][number];

const EVERYWHERE: readonly Column<Anywhere>[] = [
  {
    id: "lies",
    head: words.consumers.heads.queue,
    by: (it) => it.queue,
    cell: (it) => (
      <a href={href("/dead-letters", { vhost: it.vhost, name: it.queue })}>{it.queue}</a>
    ),
  },
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, isWide: true },
  {
    id: "died",
    head: heads.diedIn,
    by: (it) => it.died_in,
    cell: (it) => it.died_in ?? TEXTS.unknownQueue,
    isWide: true,
  },
  {
    id: "reason",
    head: heads.reason,
    by: (it) => it.reason,
    cell: (it) => <Reason reason={it.reason} />,
  },
  { id: "messages", head: heads.count, by: (it) => it.messages, isNumber: true },
  {
    id: "oldest",
    head: TEXTS.oldest,
    by: (it) => it.oldest_at,
    cell: (it) => <Age at={it.oldest_at} />,
    isWide: true,
  },
  {
    id: "newest",
    head: TEXTS.newest,
    by: (it) => it.newest_at,
    cell: (it) => <Age at={it.newest_at} />,
    isWide: true,
  },
];

/** Groups of all queues. An older node has no such list. */
function Everywhere() {
  const { data } = useQuery<DeadEverywhere>("/millrace/dead-letters", 30_000);
  if (data?.groups === undefined || data.groups.length === 0) return null;
  return (
    <Card title={TEXTS.everywhere}>
      {!data.complete && <p class="dim">{TEXTS.incomplete}</p>}
      <Table
        id="a"
        label={TEXTS.everywhere}
        columns={EVERYWHERE}
        rows={data.groups}
        keyOf={(it) => [it.vhost, it.queue, it.died_in, it.reason].join("\u0000")}
        order="-messages"
        empty={null}
      />
    </Card>
  );
}

function Desk({ queues }: { queues: DeadQueue[] }) {
  if (queues.length === 0) {
    return (
      <div class="empty">
        <h2>{TEXTS.noQueue}</h2>
        <p>{TEXTS.noQueueMore}</p>
      </div>
    );
  }
  const asked = queues.find((it) => it.vhost === said("vhost") && it.name === said("name"));
  const fullest = [...queues].sort(
    (one, other) => (other.messages_ready ?? 0) - (one.messages_ready ?? 0),
  )[0];
  const chosen = asked ?? fullest;
  return (
    <>
      <ul class="picks" aria-label={TEXTS.queues}>
        {queues.map((it) => (
          <li key={it.vhost + it.name}>
            <button
              type="button"
              aria-pressed={it === chosen}
              onClick={() => show({ vhost: it.vhost, name: it.name }, "push")}
            >
              {it.name} <span class="number">{format.count(it.messages_ready)}</span>
            </button>
          </li>
        ))}
      </ul>
      {chosen && (
        <Groups key={chosen.vhost + chosen.name} vhost={chosen.vhost} name={chosen.name} />
      )}
    </>
  );
}

function columns(
  vhost: string,
  name: string,
  retry: ((group: DeadGroup) => void) | undefined,
): Column<DeadGroup>[] {
  const shown: Column<DeadGroup>[] = [
    {
      id: "queue",
      head: heads.diedIn,
      by: (it) => it.died_in,
      cell: (it) =>
        it.died_in === null ? TEXTS.unknownQueue : <QueueLink vhost={vhost} name={it.died_in} />,
    },
    {
      id: "reason",
      head: heads.reason,
      by: (it) => it.reason,
      cell: (it) => <Reason reason={it.reason} />,
    },
    {
      id: "count",
      head: heads.count,
      by: (it) => it.count,
      isNumber: true,
    },
    {
      id: "first",
      head: heads.first,
      by: (it) => it.first_died_at,
      cell: (it) => <Age at={it.first_died_at} />,
      isWide: true,
    },
    {
      id: "last",
      head: heads.last,
      by: (it) => it.last_died_at,
      cell: (it) => <Age at={it.last_died_at} />,
      isWide: true,
    },
    {
      id: "retries",
      head: heads.retries,
      title: TEXTS.retriesTitle,
      by: (it) => it.retries_max,
      isNumber: true,
      isWide: true,
    },
  ];
  const look = (it: DeadGroup) =>
    href("/queue", { vhost, name, tab: "messages", position: it.first_position });
  shown.push({
    id: "acts",
    head: "",
    cell: (it) => (
      <span class="actions">
        {role.value.peeks && <a href={look(it)}>{TEXTS.look}</a>}
        {retry && (
          <button type="button" class="small" onClick={() => retry(it)}>
            {TEXTS.retry}…
          </button>
        )}
      </span>
    ),
  });
  return shown;
}

function Reason({ reason }: { reason: string | null }) {
  const texts: Record<string, string> = TEXTS.reasons;
  return <Tag title={reason ?? ""}>{texts[reason ?? ""] ?? reason ?? TEXTS.unknownReason}</Tag>;
}

function Age({ at }: { at: number | null }) {
  return (
    <span title={format.time(at)}>
      {at === null ? format.NOTHING : TEXTS.ago(format.ago(at, now.value))}
    </span>
  );
}

function Groups({ vhost, name }: { vhost: string; name: string }) {
  const query = useQuery<Told>(path("millrace", "queues", vhost, name, "dead-letters"), 15_000);
  const [retried, setRetried] = useState<DeadGroup | "all" | undefined>(undefined);
  const mayRetry = role.value.changes;
  const which =
    retried === undefined || retried === "all"
      ? {}
      : { reason: retried.reason ?? undefined, died_in: retried.died_in ?? undefined };
  return (
    <Card
      title={<QueueLink vhost={vhost} name={name} />}
      aside={
        mayRetry && (
          <button type="button" class="primary" onClick={() => setRetried("all")}>
            {TEXTS.retryAll}…
          </button>
        )
      }
    >
      <Loaded of={query} what={name}>
        {(told) => (
          <>
            <p class="dim">{told.whole ? TEXTS.seen(told.seen) : TEXTS.seenPart(told.seen)}</p>
            <Table
              label={words.pages.dead}
              columns={columns(vhost, name, mayRetry ? setRetried : undefined)}
              rows={told.groups}
              keyOf={(it) => `${it.died_in}\u0000${it.reason}`}
              order="-count"
              isMain
              empty={<p>{TEXTS.nothing}</p>}
            />
          </>
        )}
      </Loaded>
      {retried !== undefined && (
        <RetryDialog
          vhost={vhost}
          queue={name}
          which={which}
          title={
            retried === "all"
              ? TEXTS.titleAll(name)
              : TEXTS.title(retried.died_in, retried.reason, name)
          }
          onClose={() => setRetried(undefined)}
        />
      )}
    </Card>
  );
}

/** So many of them: the node lists 50. */
const RETRIES_MAX = 5;

/** Those that run, and the last that ran. */
function Retries() {
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
