// Who consumes from the queue: the leader knows what they hold, connections know who they are.

import { path } from "../../core/api";
import * as format from "../../core/format";
import { useQuery } from "../../core/query";
import type { Consumer, Queue } from "../../types";
import { Loaded, Tag, connectionHref } from "../../ui/parts";
import { Snippets } from "../../ui/snippets";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { ConsumerState } from "./paused";

const { heads } = words.consumers;

export const keyOfConsumer = (it: Consumer): string => it.channel_details.name + it.consumer_tag;

function rate(
  id: "delivered" | "acked",
  by: (it: Consumer) => number | undefined,
): Column<Consumer> {
  return {
    id,
    head: heads[id],
    by,
    cell: (it) => format.rate(by(it)),
    isNumber: true,
    isWide: true,
    isExtra: id === "delivered",
  };
}

export const CONSUMER_COLUMNS: readonly Column<Consumer>[] = [
  { id: "tag", head: heads.tag, by: (it) => it.consumer_tag },
  {
    id: "connection",
    head: heads.connection,
    by: (it) => it.channel_details.connection_name,
    cell: ({ channel_details: it }) => (
      <a href={connectionHref(it.connection_name)}>{it.connection_name}</a>
    ),
    isWide: true,
  },
  { id: "user", head: heads.user, by: (it) => it.channel_details.user, isWide: true },
  { id: "held", head: heads.held, by: (it) => it.millrace?.held, isNumber: true },
  {
    id: "prefetch",
    head: heads.prefetch,
    by: (it) => it.prefetch_count,
    cell: (it) =>
      it.prefetch_count === 0 ? words.consumers.noPrefetch : format.count(it.prefetch_count),
    isNumber: true,
    isWide: true,
  },
  {
    id: "acks",
    head: heads.acks,
    cell: (it) => (it.ack_required ? words.yes : <Tag tone="warn">{words.consumers.noAck}</Tag>),
    isWide: true,
  },
  rate("delivered", (it) => it.message_stats?.deliver_details.rate),
  rate("acked", (it) => it.message_stats?.ack_details.rate),
  { id: "state", head: heads.state, cell: (it) => <ConsumerState of={it} /> },
];

/** Of a queue with partitions. */
const PARTITIONS: Column<Consumer> = {
  id: "partitions",
  head: heads.partitions,
  cell: (it) => it.partitions?.join(", ") ?? "",
  wraps: true,
  isWide: true,
};

/** With the partitions there is no room for all the others. */
const WITH_PARTITIONS = [
  ...CONSUMER_COLUMNS.map((it) => (it.id === "user" ? { ...it, isExtra: true } : it)),
  PARTITIONS,
];

export function QueueConsumers({ queue }: { queue: Queue }) {
  const query = useQuery<Consumer[]>(path("consumers", queue.vhost), 3_000);
  return (
    <Loaded of={query} what={words.pages.consumers}>
      {(all) => (
        <Table
          label={words.pages.consumers}
          columns={all.some((it) => it.partitions) ? WITH_PARTITIONS : CONSUMER_COLUMNS}
          rows={all.filter((it) => it.queue.name === queue.name)}
          keyOf={keyOfConsumer}
          isMain
          empty={
            <>
              <p>{words.consumers.noneOf(queue.name)}</p>
              <Snippets queue={queue.name} />
            </>
          }
        />
      )}
    </Loaded>
  );
}
