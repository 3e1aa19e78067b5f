// Streams, and the subscriptions that read them, with how far each is behind.

import { listPath } from "../core/broker";
import { withAsked } from "../core/api";
import * as format from "../core/format";
import { useQuery } from "../core/query";
import { now } from "../core/visible";
import { type QueueRow, keyOf } from "../live/board";
import { queues } from "../live/stream";
import type { Queue } from "../types";
import { ListPage, Nothing } from "../ui/list";
import { Tag, queueHref } from "../ui/parts";
import { Spark } from "../ui/spark";
import type { Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.streams;
const { heads } = TEXTS;

type Streamy = Pick<Queue, "name" | "vhost" | "type" | "arguments" | "partitions" | "paused">;

interface Shown {
  it: Streamy;
  /** The stream that it is or reads. */
  stream: string;
  live: QueueRow | undefined;
}

function shownOf(it: Streamy): Shown {
  const source = it.arguments["x-stream"];
  const stream = typeof source === "string" ? source : it.name;
  return { it, stream, live: queues().find(it.vhost, it.name) };
}

const isSubscription = ({ it }: Shown): boolean => it.type === "subscription";

/** Messages that a subscription has not given out yet. A stream has no lag. */
const lagOf = (shown: Shown): number | undefined =>
  isSubscription(shown) ? shown.live?.ready : undefined;

/** How long it takes until the last message is reached, at the speed of now. */
function secondsBehind(shown: Shown): number | undefined {
  const lag = lagOf(shown);
  if (lag === undefined || lag === 0) return lag;
  const rate = shown.live?.outRate ?? 0;
  return rate > 0 ? lag / rate : undefined;
}

const COLUMNS: readonly Column<Shown>[] = [
  {
    id: "name",
    head: words.name,
    by: ({ it, stream }) =>
      `${it.vhost}\u0000${stream}\u0000${it.type === "stream" ? "" : it.name}`,
    cell: (shown) => (
      <span class={isSubscription(shown) ? "inner" : ""}>
        <a href={queueHref(shown.it.vhost, shown.it.name, "stream")}>{shown.it.name}</a>
        {!isSubscription(shown) && <Tag>{TEXTS.stream}</Tag>}
        {shown.it.paused && <Tag tone="warn">{TEXTS.paused}</Tag>}
      </span>
    ),
    grows: true,
  },
  {
    id: "vhost",
    head: words.vhost,
    by: ({ it }) => it.vhost,
    isWide: true,
  },
  {
    id: "partitions",
    head: heads.partitions,
    by: ({ it }) => it.partitions?.length ?? 1,
    isNumber: true,
    isWide: true,
    isExtra: true,
  },
  {
    id: "messages",
    head: heads.messages,
    by: (shown) => (isSubscription(shown) ? undefined : shown.live?.ready),
    cell: (shown) => (isSubscription(shown) ? "" : format.count(shown.live?.ready)),
    isNumber: true,
  },
  {
    id: "lag",
    head: heads.lag,
    by: lagOf,
    cell: (shown) => (isSubscription(shown) ? format.count(lagOf(shown)) : ""),
    isNumber: true,
  },
  {
    id: "behind",
    head: heads.behind,
    title: TEXTS.behindTitle,
    by: secondsBehind,
    cell: (shown) => (isSubscription(shown) ? behindText(shown) : ""),
    isNumber: true,
    isWide: true,
  },
  {
    id: "age",
    head: words.stream.lagTime,
    title: words.stream.lagTimeTitle,
    by: (shown) => (isSubscription(shown) ? shown.live?.oldestAt : undefined),
    cell: (shown) => (isSubscription(shown) ? format.ago(shown.live?.oldestAt, now.value) : ""),
    isNumber: true,
    isWide: true,
    isExtra: true,
  },
  {
    id: "trend",
    head: words.queues.columns.trend,
    cell: ({ it, live }) => <Spark values={live?.trend ?? []} label={words.trendOf(it.name)} />,
    isWide: true,
  },
  rate("in", (row) => row.inRate),
  rate("out", (row) => row.outRate),
  {
    id: "consumers",
    head: words.queues.columns.consumers,
    by: ({ live }) => live?.consumers,
    isNumber: true,
    isWide: true,
  },
];

function behindText(shown: Shown): string {
  if (lagOf(shown) === undefined) return format.NOTHING;
  const seconds = secondsBehind(shown);
  if (seconds === 0) return TEXTS.caughtUp;
  return seconds === undefined ? TEXTS.standsStill : format.duration(seconds * 1000);
}

function rate(id: "in" | "out", of: (row: QueueRow) => number): Column<Shown> {
  const head = words.queues.columns[id];
  const cell = ({ live }: Shown) => format.rate(live && of(live));
  return { id, head, by: ({ live }) => live && of(live), cell, isNumber: true, isWide: true };
}

const COLUMNS_ASKED = "name,vhost,type,arguments,partitions,paused";

const isStreamy = ({ type }: Streamy): boolean => type === "stream" || type === "subscription";

export function Streams() {
  const to = withAsked(listPath("queues"), { columns: COLUMNS_ASKED });
  const query = useQuery<Streamy[]>(to, 15_000);
  return (
    <ListPage
      title={words.pages.streams}
      of={{ ...query, data: query.data?.filter(isStreamy).map(shownOf) }}
      texts={({ it, stream }) => [it.name, stream, it.vhost]}
      columns={COLUMNS}
      keyOf={({ it }) => keyOf(it.vhost, it.name)}
      order="name"
      isOfVhosts
      empty={
        <Nothing text={TEXTS.nothing}>
          <p>{TEXTS.nothingMore}</p>
        </Nothing>
      }
    />
  );
}
