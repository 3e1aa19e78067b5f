// Dead letters of all queues. For this list the node looks at up to 50,000 messages, so it is asked seldom.

import * as format from "../../core/format";
import { href } from "../../core/place";
import { type Query, useQuery } from "../../core/query";
import { now } from "../../core/visible";
import { Card, Name } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { filterOf, fits } from "./filter";
import { Ago, Reason } from "./parts";

const TEXTS = words.dead;
const { heads } = TEXTS;

const EVERY_MS = 300_000;

export interface DeadEverywhere {
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

export const useEverywhere = (): Query<DeadEverywhere> =>
  useQuery<DeadEverywhere>("/millrace/dead-letters", EVERY_MS);

/** The queue's groups above stay filtered as this list is. */
const deskHref = ({ vhost, queue }: Anywhere): string => {
  const { text, reason } = filterOf();
  return href("/dead-letters", { vhost, name: queue, q: text, reason });
};

const COLUMNS: readonly Column<Anywhere>[] = [
  {
    id: "lies",
    head: words.consumers.heads.queue,
    by: (it) => it.queue,
    cell: (it) => (
      <a href={deskHref(it)}>
        <Name text={it.queue} />
      </a>
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
    cell: (it) => <Ago at={it.oldest_at} />,
    isWide: true,
  },
  {
    id: "newest",
    head: TEXTS.newest,
    by: (it) => it.newest_at,
    cell: (it) => <Ago at={it.newest_at} />,
    isWide: true,
  },
];

/** An older node has no such list. */
export function Everywhere({ of: { data, toldAt, reload } }: { of: Query<DeadEverywhere> }) {
  if (data?.groups === undefined || data.groups.length === 0) return null;
  const filter = filterOf();
  const oldMs = toldAt === undefined ? 0 : now.value - toldAt;
  const asOf = oldMs < 1_000 ? TEXTS.asOfNow : TEXTS.asOf(format.duration(oldMs));
  return (
    <Card
      title={TEXTS.everywhere}
      aside={
        <>
          <span class="dim">{asOf}</span>
          <button type="button" class="small" onClick={reload}>
            {TEXTS.lookAgain}
          </button>
        </>
      }
    >
      {!data.complete && <p class="dim">{TEXTS.incomplete}</p>}
      <Table
        id="a"
        label={TEXTS.everywhere}
        columns={COLUMNS}
        rows={data.groups.filter((it) => fits(filter, it, it.queue, it.vhost))}
        keyOf={(it) => [it.vhost, it.queue, it.died_in, it.reason].join("\u0000")}
        order="-messages"
        empty={<p>{words.noneMatch}</p>}
      />
    </Card>
  );
}
