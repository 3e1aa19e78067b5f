import { listPath } from "../core/broker";
import { useQuery } from "../core/query";
import type { Consumer } from "../types";
import { ListPage, Nothing } from "../ui/list";
import { QueueLink } from "../ui/parts";
import { Snippets } from "../ui/snippets";
import type { Column } from "../ui/table";
import { words } from "../words";
import { CONSUMER_COLUMNS, keyOfConsumer } from "./queue/consumers";

const TEXTS = words.consumers;

export const CONSUMED_QUEUE: Column<Consumer> = {
  id: "queue",
  head: TEXTS.heads.queue,
  by: (it) => it.queue.name,
  cell: ({ queue }) => <QueueLink vhost={queue.vhost} name={queue.name} />,
};

/** What the queue takes of the room: a phone has none for long tags, nor for the state, which the queue's page has. */
const LESS: Record<string, Partial<Column<Consumer>>> = {
  tag: { grows: true },
  state: { isWide: true },
  user: { isExtra: true },
  prefetch: { isExtra: true },
};

export const CONSUMERS_AND_QUEUES = [
  CONSUMED_QUEUE,
  ...CONSUMER_COLUMNS.map((it) => ({ ...it, ...LESS[it.id] })),
];

export function Consumers() {
  return (
    <ListPage
      title={words.pages.consumers}
      of={useQuery<Consumer[]>(listPath("consumers"), 3_000)}
      texts={({ queue, consumer_tag, channel_details: it }) => [
        queue.name,
        consumer_tag,
        it.connection_name,
        it.user,
      ]}
      columns={CONSUMERS_AND_QUEUES}
      keyOf={keyOfConsumer}
      order="queue"
      isOfVhosts
      empty={
        <Nothing text={TEXTS.nobody}>
          <Snippets />
        </Nothing>
      }
    />
  );
}
