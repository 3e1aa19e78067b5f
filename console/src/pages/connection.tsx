import { path } from "../core/api";
import * as format from "../core/format";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import { now } from "../core/visible";
import type { Channel, Connection, Consumer } from "../types";
import { Arguments, Card, Facts, Head, Loaded, QueueLink } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { CHANNEL_COLUMNS } from "./channels";
import { State } from "./connections";
import { CloseConnection } from "./held/holder";
import { CONSUMER_COLUMNS } from "./queue/consumers";

const TEXTS = words.connections;
const { heads } = TEXTS;

export function ConnectionPage() {
  const name = said("name");
  const query = useQuery<Connection>(path("connections", name), 3_000);
  return (
    <>
      <Head title={query.data?.user_provided_name ?? name}>
        {query.data && <CloseConnection name={name} user={query.data.user} />}
      </Head>
      <Loaded of={query}>{(connection) => <About connection={connection} />}</Loaded>
      <Channels name={name} />
      <Consumers name={name} />
    </>
  );
}

function About({ connection: it }: { connection: Connection }) {
  return (
    <Card title={TEXTS.about}>
      <Facts
        of={[
          [words.name, it.name],
          [heads.user, it.user],
          [words.vhost, it.vhost],
          [heads.state, <State of={it.state} />],
          [heads.node, it.node],
          [heads.tls, it.ssl ? words.yes : words.no],
          [TEXTS.protocol, it.protocol],
          [
            TEXTS.since,
            `${format.time(it.connected_at)} (${format.ago(it.connected_at, now.value)})`,
          ],
          [TEXTS.pending, format.bytes(it.send_pend)],
          [TEXTS.client, <Arguments of={it.client_properties} />],
        ]}
      />
    </Card>
  );
}

function Channels({ name }: { name: string }) {
  const { data } = useQuery<Channel[]>(path("connections", name, "channels"), 3_000);
  return (
    <Card title={words.pages.channels}>
      <Table
        id="h"
        label={words.pages.channels}
        columns={CHANNEL_COLUMNS}
        rows={data ?? []}
        keyOf={(it) => it.name}
        order="number"
        empty={<p>{words.channels.nobody}</p>}
      />
    </Card>
  );
}

const QUEUE: Column<Consumer> = {
  id: "queue",
  head: words.consumers.heads.queue,
  by: (it) => it.queue.name,
  cell: ({ queue }) => <QueueLink vhost={queue.vhost} name={queue.name} />,
};

const CONSUMERS = [QUEUE, ...CONSUMER_COLUMNS.filter((it) => it.id !== "connection")];

function Consumers({ name }: { name: string }) {
  const { data } = useQuery<Consumer[]>("/consumers", 3_000);
  return (
    <Card title={words.pages.consumers}>
      <Table
        id="m"
        label={words.pages.consumers}
        columns={CONSUMERS}
        rows={(data ?? []).filter((it) => it.channel_details.connection_name === name)}
        keyOf={(it) => it.channel_details.name + it.consumer_tag}
        empty={<p>{words.consumers.nobody}</p>}
      />
    </Card>
  );
}
