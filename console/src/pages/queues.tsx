// All queues, as the live stream tells them; what it does not tell is asked for beside it.

import { useMemo } from "preact/hooks";
import { useVhosts } from "../core/broker";
import * as format from "../core/format";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { keyOf, messagesOf, type QueueRow } from "../live/board";
import { isTold, queues, queuesQuery, turn } from "../live/stream";
import type { Queue } from "../types";
import { Choice } from "../ui/fields";
import { Opener } from "../ui/form";
import { Nothing } from "../ui/list";
import { Age, Head, Loaded, QueueLink, Tag } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { Snippets } from "../ui/snippets";
import { useSelected } from "../ui/selected";
import { Spark } from "../ui/spark";
import { ColumnMenu, Table, type Column } from "../ui/table";
import { words } from "../words";
import { Bulk } from "./queues/bulk";
import { Declare } from "./queues/declare";

const TEXTS = words.queues;
const { columns: HEADS } = TEXTS;

/** What the stream does not tell. */
const MORE = "name,vhost,policy,paused_at,node,partitions";

/** A list of all queues is much to ask for: of many queues more seldom. */
const MORE_MS = 15_000;
const MORE_OF_MANY_MS = 60_000;
const MANY = 1_000;

interface Shown {
  row: QueueRow;
  more: Queue | undefined;
}

const COLUMNS: readonly Column<Shown>[] = [
  {
    id: "name",
    head: HEADS.name,
    by: ({ row }) => row.name,
    cell: (it) => <Name of={it} />,
    grows: true,
  },
  {
    id: "vhost",
    head: HEADS.vhost,
    by: ({ row }) => row.vhost,
    isWide: true,
  },
  {
    id: "type",
    head: HEADS.type,
    by: ({ row }) => row.type,
    cell: ({ row, more }) => (
      <>
        {row.type}
        {more?.partitions && (
          <span class="dim" title={TEXTS.partitions(more.partitions.length)}>
            {TEXTS.times(more.partitions.length)}
          </span>
        )}
      </>
    ),
    isWide: true,
  },
  number("ready", ({ row }) => row.ready),
  { ...number("unacked", ({ row }) => row.unacked), isWide: true },
  { ...number("messages", ({ row }) => messagesOf(row)), isWide: true, isExtra: true },
  {
    id: "trend",
    head: HEADS.trend,
    title: TEXTS.titles.trend,
    cell: ({ row }) => <Spark values={row.trend} label={words.trendOf(row.name)} />,
    isWide: true,
  },
  { ...number("in", ({ row }) => row.inRate, format.rate), isWide: true },
  { ...number("out", ({ row }) => row.outRate, format.rate), isWide: true },
  {
    ...number("growth", ({ row }) => row.inRate - row.outRate, format.change),
    isWide: true,
    isExtra: true,
  },
  number("consumers", ({ row }) => row.consumers),
  { ...number("bytes", ({ row }) => row.bytes, format.bytes), isWide: true, isExtra: true },
  { ...number("delayed", ({ row }) => row.delayed), isWide: true, isExtra: true },
  { ...number("leaving", ({ row }) => row.leaving), isWide: true, isExtra: true },
  {
    id: "oldest",
    head: HEADS.oldest,
    title: TEXTS.titles.oldest,
    // By its age: the first click shows the oldest first.
    by: ({ row }) => (row.oldestAt === null ? -Infinity : -row.oldestAt),
    cell: ({ row }) => <Age at={row.oldestAt} />,
    isNumber: true,
    isWide: true,
  },
  text("policy", ({ more }) => more?.policy),
  text("node", ({ more }) => more?.node),
];

function number(
  id: keyof typeof HEADS,
  by: (it: Shown) => number | null | undefined,
  shown: (value: number) => string = format.count,
): Column<Shown> {
  const cell = (it: Shown) => {
    const value = by(it);
    return value === null || value === undefined ? format.NOTHING : shown(value);
  };
  return {
    id,
    head: HEADS[id],
    title: TEXTS.titles[id as keyof typeof TEXTS.titles],
    by,
    cell,
    isNumber: true,
  };
}

function text(id: keyof typeof HEADS, by: (it: Shown) => string | null | undefined): Column<Shown> {
  return { id, head: HEADS[id], by, isWide: true, isExtra: true };
}

function Name({ of: { row, more } }: { of: Shown }) {
  return (
    <>
      <QueueLink vhost={row.vhost} name={row.name} />
      {row.isDown && <Tag tone="bad">{TEXTS.down}</Tag>}
      {row.pausedBy !== null && (
        <Tag tone="warn" title={words.since(format.time(more?.paused_at))}>
          {TEXTS.pausedBy(row.pausedBy)}
        </Tag>
      )}
    </>
  );
}

/** Filters beside the text, each by what the stream tells. */
const FILTERS = {
  "": () => true,
  waiting: (row: QueueRow) => row.ready > 0,
  idle: (row: QueueRow) => row.ready > 0 && row.consumers === 0,
  growing: (row: QueueRow) => row.inRate > row.outRate,
  empty: (row: QueueRow) => messagesOf(row) === 0,
} as const;

type Filter = keyof typeof FILTERS;

const isFilter = (text: string): text is Filter => text in FILTERS;

function useMore(): Map<string, Queue> {
  const every = queues().rows.size > MANY ? MORE_OF_MANY_MS : MORE_MS;
  const { data } = useQuery<Queue[]>(`/queues?columns=${MORE}`, every);
  return useMemo(
    () => new Map((data ?? []).map((queue) => [keyOf(queue.vhost, queue.name), queue])),
    [data],
  );
}

const isNotVhost = ({ id }: Column<Shown>): boolean => id !== "vhost";

const keyOfShown = ({ row }: Shown): string => keyOf(row.vhost, row.name);

export function Queues() {
  const more = useMore();
  const vhosts = useVhosts();
  const [selected, setSelected] = useSelected();
  void turn.value;
  const [vhost, filter, kind] = [said("vhost"), filterText(), said("only")];
  const wanted = FILTERS[isFilter(kind) ? kind : ""];
  const all = [...queues().rows.values()];
  const shown = all
    .filter((row) => (vhost === "" || row.vhost === vhost) && wanted(row))
    .map((row): Shown => ({ row, more: more.get(keyOf(row.vhost, row.name)) }))
    .filter(({ row, more: it }) => matches(filter, row.name, row.vhost, row.type, it?.policy));
  const picked = shown.filter((it) => selected.has(keyOfShown(it)));
  const mayChange = role.value.changes;
  // One vhost is not said again in each row.
  const columns = vhosts.length > 1 && vhost === "" ? COLUMNS : COLUMNS.filter(isNotVhost);
  return (
    <>
      <Head title={words.pages.queues}>
        <Search label={words.pages.queues} />
        <VhostFilter />
        <ColumnMenu columns={columns} order="name" />
        {mayChange && (
          <Opener verb={TEXTS.declare.button} class="primary">
            {(close) => <Declare onClose={close} />}
          </Opener>
        )}
      </Head>
      <div class="under-head">
        <Choice
          label={TEXTS.filter}
          value={isFilter(kind) ? kind : ""}
          options={TEXTS.filters}
          onChoose={(only) => show({ only })}
        />
        {isTold.value && <span class="dim">{TEXTS.shown(shown.length, all.length)}</span>}
      </div>
      {picked.length > 0 && (
        <Bulk queues={picked.map(({ row }) => row)} onDone={() => setSelected(new Set())} />
      )}
      <Loaded of={queuesQuery()} what={words.pages.queues}>
        {() => (
          <Table
            label={words.pages.queues}
            columns={columns}
            rows={shown}
            keyOf={keyOfShown}
            order="name"
            isMain
            {...(mayChange ? { selected, onSelect: setSelected } : {})}
            empty={all.length > 0 ? <p>{TEXTS.noneMatch}</p> : <NoQueue />}
          />
        )}
      </Loaded>
    </>
  );
}

function NoQueue() {
  return (
    <Nothing text={TEXTS.empty}>
      <Snippets />
    </Nothing>
  );
}
