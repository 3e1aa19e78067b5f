// The desk for dead letters: what died where and why, and sending it back.

import { useState } from "preact/hooks";
import { path } from "../core/api";
import * as format from "../core/format";
import { href, said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { DeadGroup, DeadLetters as Told, Queue } from "../types";
import { Card, Head, Loaded, QueueLink } from "../ui/parts";
import { Search, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { type DeadEverywhere, Everywhere, useEverywhere } from "./dead/everywhere";
import { ReasonFilter, filterOf, fits, whichOf } from "./dead/filter";
import { Ago, Reason } from "./dead/parts";
import { Retries } from "./dead/retries";
import { RetryDialog, type Which } from "./dead/retry";

const TEXTS = words.dead;
const { heads } = TEXTS;

type DeadQueue = Pick<Queue, "name" | "vhost" | "messages_ready">;

const QUEUES = "/millrace/dead-letter-queues?columns=name,vhost,messages_ready";

export function DeadLetters() {
  const query = useQuery<DeadQueue[]>(QUEUES, 10_000);
  const everywhere = useEverywhere();
  return (
    <>
      <Head title={words.pages.dead}>
        <Search label={words.pages.dead} />
        <ReasonFilter />
      </Head>
      <Loaded of={query} what={words.pages.dead}>
        {(queues) => <Desk queues={queues} everywhere={everywhere.data} />}
      </Loaded>
      <Everywhere of={everywhere} />
      <Retries />
    </>
  );
}

interface DeskProps {
  queues: DeadQueue[];
  everywhere: DeadEverywhere | undefined;
}

/** Queues whose name the filter names, and those in which it names a group, as far as groups are known. */
function filtered({ queues, everywhere }: DeskProps): DeadQueue[] {
  const filter = filterOf();
  const isNear = ({ name, vhost }: DeadQueue) =>
    everywhere?.groups?.some(
      (it) => it.queue === name && it.vhost === vhost && fits(filter, it, name, vhost),
    ) ?? false;
  const isNamed = (it: DeadQueue) =>
    filter.reason === "" && matches(filter.text, it.name, it.vhost);
  return queues.filter((it) => isNamed(it) || isNear(it));
}

function Desk(props: DeskProps) {
  const { queues } = props;
  const isMany = new Set(queues.map((it) => it.vhost)).size > 1;
  if (queues.length === 0) {
    return (
      <div class="empty">
        <h2>{TEXTS.noQueue}</h2>
        <p>{TEXTS.noQueueMore}</p>
      </div>
    );
  }
  const asked = queues.find((it) => it.vhost === said("vhost") && it.name === said("name"));
  const found = filtered(props);
  // Who named a queue means it, whatever the filter says.
  const listed = queues.filter((it) => it === asked || found.includes(it));
  const fullest = [...listed].sort(
    (one, other) => (other.messages_ready ?? 0) - (one.messages_ready ?? 0),
  )[0];
  const chosen = asked ?? fullest;
  if (!chosen) return <p>{words.noneMatch}</p>;
  return (
    <>
      <ul class="picks" aria-label={TEXTS.queues}>
        {listed.map((it) => (
          <li key={it.vhost + it.name}>
            <button
              type="button"
              aria-pressed={it === chosen}
              onClick={() => show({ vhost: it.vhost, name: it.name }, "push")}
            >
              {it.name} {isMany && <small>{words.queue.inVhost(it.vhost)}</small>}{" "}
              <span class="number">{format.count(it.messages_ready)}</span>
            </button>
          </li>
        ))}
      </ul>
      <Groups key={chosen.vhost + chosen.name} vhost={chosen.vhost} name={chosen.name} />
    </>
  );
}

function columns(
  vhost: string,
  name: string,
  retry: ((group: DeadGroup) => void) | undefined,
  mayBeOne: (group: DeadGroup) => boolean,
): Column<DeadGroup>[] {
  const look = (it: DeadGroup) =>
    href("/queue", { vhost, name, tab: "messages", position: it.first_position });
  return [
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
    { id: "count", head: heads.count, by: (it) => it.count, isNumber: true },
    {
      id: "first",
      head: heads.first,
      by: (it) => it.first_died_at,
      cell: (it) => <Ago at={it.first_died_at} />,
      isWide: true,
    },
    {
      id: "last",
      head: heads.last,
      by: (it) => it.last_died_at,
      cell: (it) => <Ago at={it.last_died_at} />,
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
    {
      id: "acts",
      head: "",
      cell: (it) => (
        <span class="actions">
          {role.value.peeks && <a href={look(it)}>{TEXTS.look}</a>}
          {retry && mayBeOne(it) && (
            <button type="button" class="small" onClick={() => retry(it)}>
              {TEXTS.retry}…
            </button>
          )}
        </span>
      ),
    },
  ];
}

/** What is to be sent back, and what the dialog is called. */
interface Chosen {
  which: Which;
  title: string;
}

function Groups({ vhost, name }: { vhost: string; name: string }) {
  const query = useQuery<Told>(path("millrace", "queues", vhost, name, "dead-letters"), 15_000);
  const [chosen, setChosen] = useState<Chosen | undefined>(undefined);
  const filter = filterOf();
  const mayRetry = role.value.changes;
  const all = query.data?.groups ?? [];
  const shown = all.filter((it) => fits(filter, it, name, vhost));
  const which = whichOf(all, shown);
  const isAll = shown.length === all.length;
  const retryOne = (it: DeadGroup) => {
    const one = whichOf(all, [it]);
    if (one) setChosen({ which: one, title: TEXTS.title(it.died_in, it.reason, name) });
  };
  const retryShown = () => {
    if (which) setChosen({ which, title: isAll ? TEXTS.titleAll(name) : TEXTS.titleShown(name) });
  };
  return (
    <Card
      title={<QueueLink vhost={vhost} name={name} />}
      aside={
        mayRetry &&
        which && (
          <button type="button" class="primary" onClick={retryShown}>
            {isAll ? TEXTS.retryAll : TEXTS.retryShown}…
          </button>
        )
      }
    >
      <Loaded of={query} what={name}>
        {(told) => (
          <>
            <p class="dim">
              {shown.length < all.length && `${TEXTS.groupsShown(shown.length, all.length)} `}
              {told.whole ? TEXTS.seen(told.seen) : TEXTS.seenPart(told.seen)}
            </p>
            <Table
              label={words.pages.dead}
              columns={columns(
                vhost,
                name,
                mayRetry ? retryOne : undefined,
                (it) => whichOf(all, [it]) !== undefined,
              )}
              rows={shown}
              keyOf={(it) => `${it.died_in}\u0000${it.reason}`}
              order="-count"
              isMain
              empty={<p>{all.length === 0 ? TEXTS.nothing : words.noneMatch}</p>}
            />
          </>
        )}
      </Loaded>
      {chosen && (
        <RetryDialog
          vhost={vhost}
          queue={name}
          which={chosen.which}
          title={chosen.title}
          onClose={() => setChosen(undefined)}
        />
      )}
    </Card>
  );
}
