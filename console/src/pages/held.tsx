// Who holds messages that are not acknowledged: consumers with most of them, and of one queue each message.

import { path, withAsked } from "../core/api";
import * as format from "../core/format";
import { href, said } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { queues } from "../live/stream";
import type { Channel, Consumer, Holder, Message, Messages } from "../types";
import { ListCard } from "../ui/list";
import { Age, Card, Head, Loaded, connectionHref } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { CONSUMED_QUEUE } from "./consumers";
import { CloseConnection, HolderOf } from "./held/holder";
import { keyOfConsumer } from "./queue/consumers";
import { messagesPath } from "./queue/looked";

const TEXTS = words.held;
const { heads } = TEXTS;

export function Held() {
  const isOne = said("name") !== "";
  return (
    <>
      <Head title={words.pages.held} />
      {isOne && <HeldOf vhost={said("vhost")} name={said("name")} />}
      <HoldingConsumers />
      <HoldingChannels />
    </>
  );
}

const CONSUMERS: readonly Column<Consumer>[] = [
  CONSUMED_QUEUE,
  { id: "held", head: heads.held, by: (it) => it.millrace?.held, isNumber: true },
  {
    id: "since",
    head: heads.since,
    title: TEXTS.sinceTitle,
    // By its age: who has held a message for longest comes first.
    by: (it) => (it.oldest_held_at ? -it.oldest_held_at : -Infinity),
    cell: (it) => (it.oldest_held_at ? <Age at={it.oldest_held_at} /> : TEXTS.short),
    isNumber: true,
  },
  {
    id: "messages",
    head: "",
    cell: ({ queue }) =>
      role.value.peeks && (
        <a href={href("/held", { vhost: queue.vhost, name: queue.name })}>{TEXTS.see}</a>
      ),
  },
  { id: "tag", head: heads.tag, by: (it) => it.consumer_tag, isWide: true },
  {
    id: "connection",
    head: heads.connection,
    by: (it) => it.channel_details.connection_name,
    cell: ({ channel_details: it }) => (
      <a href={connectionHref(it.connection_name)}>{it.connection_name}</a>
    ),
    isWide: true,
  },
  { id: "host", head: heads.host, by: (it) => it.channel_details.peer_host, isWide: true },
  { id: "user", head: heads.user, by: (it) => it.channel_details.user, isWide: true },
  {
    id: "close",
    head: "",
    cell: ({ channel_details: it }) => <CloseConnection name={it.connection_name} user={it.user} />,
  },
];

function HoldingConsumers() {
  return (
    <ListCard
      title={TEXTS.consumers}
      of={useQuery<Consumer[]>("/millrace/held", 3_000)}
      rows={(all) => all}
      columns={CONSUMERS}
      keyOf={keyOfConsumer}
      order="-since,-held"
      isMain
      empty={<p>{TEXTS.nobody}</p>}
    />
  );
}

const CHANNELS: readonly Column<Channel>[] = [
  {
    id: "name",
    head: heads.channel,
    by: (it) => it.name,
    cell: (it) => <a href={connectionHref(it.connection_details.name)}>{it.name}</a>,
  },
  { id: "unacked", head: heads.held, by: (it) => it.messages_unacknowledged, isNumber: true },
  { id: "user", head: heads.user, by: (it) => it.user, isWide: true },
  {
    id: "close",
    head: "",
    cell: ({ connection_details: it, user }) => <CloseConnection name={it.name} user={user} />,
  },
];

/** Channels hold what was fetched with `basic.get`, which no consumer has. */
function HoldingChannels() {
  return (
    <ListCard
      id="c"
      title={TEXTS.channels}
      of={useQuery<Channel[]>("/channels", 3_000)}
      rows={(all) => all.filter((it) => it.messages_unacknowledged > 0)}
      columns={CHANNELS}
      keyOf={(it) => it.name}
      order="-unacked"
      empty={<p>{TEXTS.nobody}</p>}
    />
  );
}

/** Of a holder whose node does not say more, nothing is known. */
const holderTold = (holder: Holder | undefined): string =>
  holder?.held_since === null ? TEXTS.short : format.NOTHING;

const MESSAGES: readonly Column<Message>[] = [
  {
    id: "age",
    head: heads.age,
    by: (it) => it.enqueued_at,
    cell: (it) => <Age at={it.enqueued_at} />,
    isWide: true,
  },
  {
    id: "held",
    head: heads.heldFor,
    title: TEXTS.sinceTitle,
    by: ({ holder }) => (holder?.held_since ? -holder.held_since : -Infinity),
    cell: ({ holder }) =>
      holder?.held_since ? <Age at={holder.held_since} /> : holderTold(holder),
    isNumber: true,
  },
  { id: "key", head: heads.key, by: (it) => it.routing_key, isWide: true },
  {
    id: "holder",
    head: heads.holder,
    cell: (it) => it.holder && <HolderOf holder={it.holder} />,
    wraps: true,
  },
  {
    id: "close",
    head: "",
    cell: ({ holder }) =>
      holder?.connection_name !== undefined && (
        <CloseConnection name={holder.connection_name} user={holder.user ?? ""} />
      ),
  },
];

const SHOWN = 200;

function HeldOf({ vhost, name }: { vhost: string; name: string }) {
  const partitions = useQuery<{ partitions?: unknown[] }>(
    withAsked(path("queues", vhost, name), { columns: "partitions" }),
  ).data?.partitions;
  const asked = { state: "unacked", count: SHOWN, truncate: 0, partition: said("partition") };
  const query = useQuery<Messages>(withAsked(messagesPath(vhost, name), asked), 5_000);
  const unacked = queues().find(vhost, name)?.unacked;
  return (
    <Card
      title={TEXTS.of(name, unacked === undefined ? "" : format.count(unacked))}
      aside={<a href="/held">{TEXTS.allQueues}</a>}
    >
      {partitions && (
        <p class="actions">
          {TEXTS.partition}
          {partitions.map((_, index) => (
            <a key={index} href={href("/held", { vhost, name, partition: index })}>
              {index}
            </a>
          ))}
        </p>
      )}
      <Loaded of={query} what={name}>
        {(told) => (
          <Table
            id="m"
            label={TEXTS.of(name, "")}
            columns={MESSAGES}
            rows={told.items}
            keyOf={(it) => it.position}
            order="-held,age"
            empty={<p>{TEXTS.nothing}</p>}
          />
        )}
      </Loaded>
    </Card>
  );
}
