import { path } from "../core/api";
import * as format from "../core/format";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import { now } from "../core/visible";
import type { Channel, Connection, Consumer, Rate } from "../types";
import { ListCard } from "../ui/list";
import { Arguments, Card, Facts, Head, Loaded } from "../ui/parts";
import { words } from "../words";
import { CHANNEL_COLUMNS } from "./channels";
import { State } from "./connections";
import { CONSUMERS_AND_QUEUES } from "./consumers";
import { CloseConnection } from "./held/holder";
import { keyOfConsumer } from "./queue/consumers";

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
      <Loaded of={query} what={TEXTS.about}>
        {(connection) => <About connection={connection} />}
      </Loaded>
      <Channels name={name} />
      <Consumers name={name} />
    </>
  );
}

/** Bytes in all, and a second. */
const moved = (total: number | undefined, details: Rate | undefined): string =>
  TEXTS.moved(format.bytes(total), format.bytes(details?.rate));

function About({ connection: it }: { connection: Connection }) {
  return (
    <Card title={TEXTS.about}>
      <Facts
        of={[
          [words.name, it.name],
          [heads.user, it.user],
          [words.vhost, it.vhost],
          [heads.state, <State of={it} />],
          [heads.node, it.node],
          [heads.tls, it.ssl ? words.yes : words.no],
          [TEXTS.protocol, it.protocol],
          [
            TEXTS.since,
            `${format.time(it.connected_at)} (${format.ago(it.connected_at, now.value)})`,
          ],
          [TEXTS.received, moved(it.recv_oct, it.recv_oct_details)],
          [TEXTS.sent, moved(it.send_oct, it.send_oct_details)],
          [heads.published, format.rate(it.message_stats?.publish_details.rate)],
          [heads.delivered, format.rate(it.message_stats?.deliver_get_details.rate)],
          [heads.acked, format.rate(it.message_stats?.ack_details.rate)],
          [TEXTS.pending, format.bytes(it.send_pend)],
          [TEXTS.client, <Arguments of={it.client_properties} />],
        ]}
      />
    </Card>
  );
}

function Channels({ name }: { name: string }) {
  return (
    <ListCard
      id="h"
      title={words.pages.channels}
      of={useQuery<Channel[]>(path("connections", name, "channels"), 3_000)}
      rows={(all) => all}
      columns={CHANNEL_COLUMNS}
      keyOf={(it) => it.name}
      order="number"
      empty={<p>{words.channels.nobody}</p>}
    />
  );
}

const CONSUMERS = CONSUMERS_AND_QUEUES.filter((it) => it.id !== "connection");

function Consumers({ name }: { name: string }) {
  return (
    <ListCard
      id="m"
      title={words.pages.consumers}
      of={useQuery<Consumer[]>("/consumers", 3_000)}
      rows={(all) => all.filter((it) => it.channel_details.connection_name === name)}
      columns={CONSUMERS}
      keyOf={keyOfConsumer}
      empty={<p>{words.consumers.nobody}</p>}
    />
  );
}
