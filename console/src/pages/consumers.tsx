import { listPath, useVhosts } from "../core/broker";
import { useQuery } from "../core/query";
import type { Consumer } from "../types";
import { Head, Loaded, QueueLink } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { Snippets } from "../ui/snippets";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { CONSUMER_COLUMNS } from "./queue/consumers";

const TEXTS = words.consumers;

const QUEUE: Column<Consumer> = {
  id: "queue",
  head: TEXTS.heads.queue,
  by: (it) => it.queue.name,
  cell: ({ queue }) => <QueueLink vhost={queue.vhost} name={queue.name} />,
};

const COLUMNS = [QUEUE, ...CONSUMER_COLUMNS];

export function Consumers() {
  const query = useQuery<Consumer[]>(listPath("consumers"), 3_000);
  const filter = filterText();
  const isFound = (it: Consumer) =>
    matches(
      filter,
      it.queue.name,
      it.consumer_tag,
      it.channel_details.connection_name,
      it.channel_details.user,
    );
  return (
    <>
      <Head title={words.pages.consumers}>
        <Search label={words.pages.consumers} />
        <VhostFilter vhosts={useVhosts()} />
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.consumers}
            columns={COLUMNS}
            rows={all.filter(isFound)}
            keyOf={(it) => it.channel_details.name + it.consumer_tag}
            order="queue"
            isMain
            empty={all.length > 0 ? <p>{words.noneMatch}</p> : <Nobody />}
          />
        )}
      </Loaded>
    </>
  );
}

function Nobody() {
  return (
    <>
      <h2>{TEXTS.nobody}</h2>
      <Snippets />
    </>
  );
}
