// What streams and subscriptions have beside queues: partitions, readers, and the place where a subscription goes on.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { change, path, withAsked } from "../../core/api";
import * as format from "../../core/format";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import { now } from "../../core/visible";
import { queues } from "../../live/stream";
import type { Assignment, Connection, Partition, Queue } from "../../types";
import { TextField } from "../../ui/fields";
import { RowForm } from "../../ui/form";
import { ListCard } from "../../ui/list";
import { Card, QueueLink, connectionHref } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { Seek } from "./seeking";

const TEXTS = words.stream;

export function StreamTab({ queue }: { queue: Queue }) {
  const { makesPolicies, changes } = role.value;
  const mayChange = makesPolicies && changes;
  const isStream = queue.type === "stream";
  const source = queue.arguments["x-stream"];
  return (
    <>
      {typeof source === "string" && (
        <p>
          {TEXTS.reads} <QueueLink vhost={queue.vhost} name={source} />
        </p>
      )}
      {isStream && <Readers queue={queue} />}
      {!isStream && mayChange && <Seek queue={queue} />}
      <Partitions queue={queue} mayChange={isStream && mayChange} />
    </>
  );
}

const PARTITION_COLUMNS: readonly Column<Partition>[] = [
  { id: "partition", head: TEXTS.partition, by: (it) => it.partition },
  { id: "group", head: TEXTS.group, by: (it) => it.group, isWide: true },
  {
    id: "leader",
    head: TEXTS.leader,
    by: (it) => it.leader,
    cell: (it) => it.leader ?? format.NOTHING,
  },
];

const KEPT: Column<Partition> = {
  id: "messages",
  head: words.streams.heads.messages,
  by: (it) => it.messages_ready,
  isNumber: true,
};

const LAG_COLUMNS: readonly Column<Partition>[] = [
  { id: "lag", head: TEXTS.lag, by: (it) => it.messages_ready, isNumber: true },
  {
    id: "age",
    head: TEXTS.lagTime,
    title: TEXTS.lagTimeTitle,
    by: (it) => it.oldest_ready_at && -it.oldest_ready_at,
    cell: (it) =>
      it.messages_ready === 0 ? words.streams.caughtUp : format.ago(it.oldest_ready_at, now.value),
    isNumber: true,
  },
  {
    id: "unacked",
    head: words.queues.columns.unacked,
    by: (it) => it.messages_unacknowledged,
    isNumber: true,
    isWide: true,
  },
];

type HasConsumer = (partition: number) => ComponentChildren;

/** Which consumer has a partition: the connection of it, as the node names it. */
function useConsumers({ vhost, name, type }: Queue): Column<Partition>[] {
  const to = path("millrace", "queues", vhost, name, "assignment");
  const { data } = useQuery<Assignment>(type === "stream" ? undefined : to, 3_000);
  const connections = useQuery<Connection[]>(
    data?.consumers.length ? path("vhosts", vhost, "connections") : undefined,
    10_000,
  );
  if (!data) return [];
  const link = (id: string) => {
    const found = connections.data?.find((it) => it.millrace?.id === id);
    if (!found) return id;
    return <a href={connectionHref(found.name)}>{found.user_provided_name ?? found.name}</a>;
  };
  const of: HasConsumer = (partition) => {
    const one = data.partitions.find((it) => it.partition === partition)?.consumer;
    if (one) return link(one);
    const some = data.consumers.filter((it) => it.partitions.includes(partition));
    if (some.length > 1) return TEXTS.sharedBy(some.length);
    return some[0]?.connection ? link(some[0].connection) : format.NOTHING;
  };
  return [{ id: "consumer", head: TEXTS.consumer, cell: (it) => of(it.partition), isWide: true }];
}

function Partitions({ queue, mayChange }: { queue: Queue; mayChange: boolean }) {
  const { vhost, name, partitions = [] } = queue;
  const consumers = useConsumers(queue);
  const [text, setText] = useState("");
  const count = Number(text);
  return (
    <Card title={TEXTS.partitions}>
      <Table
        id="p"
        label={TEXTS.partitions}
        columns={[
          ...PARTITION_COLUMNS,
          ...(queue.type === "stream" ? [KEPT] : LAG_COLUMNS),
          ...consumers,
        ]}
        rows={partitions}
        keyOf={(it) => String(it.partition)}
        empty={<p>{TEXTS.onePartition}</p>}
      />
      {mayChange && (
        <RowForm
          verb={TEXTS.moreVerb}
          act={() =>
            change("PUT", path("millrace", "queues", vhost, name, "partitions"), {
              partitions: count,
            })
          }
          done={TEXTS.more(count)}
        >
          <TextField
            label={TEXTS.moreLabel}
            hint={TEXTS.moreHint}
            type="number"
            min={partitions.length + 1}
            max={256}
            required
            value={text}
            onText={setText}
          />
        </RowForm>
      )}
    </Card>
  );
}

type Reader = Pick<Queue, "name" | "vhost" | "arguments">;

const liveOf = ({ vhost, name }: Reader) => queues().find(vhost, name);

const READER_COLUMNS: readonly Column<Reader>[] = [
  {
    id: "name",
    head: TEXTS.subscription,
    by: (it) => it.name,
    cell: (it) => <QueueLink vhost={it.vhost} name={it.name} />,
  },
  // Messages that nobody has got yet.
  { id: "lag", head: TEXTS.lag, by: (it) => liveOf(it)?.ready, isNumber: true },
  {
    id: "unacked",
    head: words.queues.columns.unacked,
    by: (it) => liveOf(it)?.unacked,
    isNumber: true,
    isWide: true,
  },
  {
    id: "consumers",
    head: words.queues.columns.consumers,
    by: (it) => liveOf(it)?.consumers,
    isNumber: true,
  },
];

function Readers({ queue }: { queue: Queue }) {
  const to = withAsked(path("queues", queue.vhost), { columns: "name,vhost,arguments" });
  return (
    <ListCard
      id="r"
      title={TEXTS.subscriptions}
      of={useQuery<Reader[]>(to, 15_000)}
      rows={(all) => all.filter((it) => it.arguments["x-stream"] === queue.name)}
      columns={READER_COLUMNS}
      keyOf={(it) => it.name}
      empty={<p>{TEXTS.noSubscription}</p>}
    />
  );
}
