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

const COLUMNS = [CONSUMED_QUEUE, ...CONSUMER_COLUMNS];

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
      columns={COLUMNS}
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
