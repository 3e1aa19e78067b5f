// What streams and subscriptions have beside queues: partitions, readers, and the place where a subscription goes on.

import { useState } from "preact/hooks";
import { ask, change, path } from "../../core/api";
import * as format from "../../core/format";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import { queues } from "../../live/stream";
import type { Messages, Partition, Queue } from "../../types";
import { useAct } from "../../ui/act";
import { Choice, TextField } from "../../ui/fields";
import { RowForm } from "../../ui/form";
import { ListCard } from "../../ui/list";
import { Card, QueueLink } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { messagesPath } from "./looked";
import { placeOf, type How } from "./seek";

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
  { id: "group", head: TEXTS.group, by: (it) => it.group },
  {
    id: "leader",
    head: TEXTS.leader,
    by: (it) => it.leader,
    cell: (it) => it.leader ?? format.NOTHING,
  },
];

function Partitions({ queue, mayChange }: { queue: Queue; mayChange: boolean }) {
  const { vhost, name, partitions = [] } = queue;
  const [text, setText] = useState("");
  const count = Number(text);
  return (
    <Card title={TEXTS.partitions}>
      <Table
        id="p"
        label={TEXTS.partitions}
        columns={PARTITION_COLUMNS}
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
  const to = `${path("queues", queue.vhost)}?columns=name,vhost,arguments`;
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

/** Sets a subscription to another place, after showing what it reads next. */
function Seek({ queue }: { queue: Queue }) {
  const [how, setHow] = useState<How>("first");
  const [value, setValue] = useState("");
  const [preview, setPreview] = useState<Messages | undefined>(undefined);
  const { isBusy, run } = useAct();
  const place = placeOf(how, value);
  const { vhost, name } = queue;
  const stream = String(queue.arguments["x-stream"] ?? "");
  const isInPreview = role.value.peeks && (how === "first" || how === "offset");
  const look = () =>
    run(async () => {
      const from = how === "offset" ? Number(value) + 1 : undefined;
      setPreview(
        await ask<Messages>(messagesPath(vhost, stream), { from, count: 5, truncate: 200 }),
      );
    });
  const submit = async (event: Event) => {
    event.preventDefault();
    if (place)
      await run(
        () => change("PUT", path("millrace", "queues", vhost, name, "position"), place),
        TEXTS.sought(name),
      );
  };
  const live = queues().find(vhost, name);
  return (
    <Card title={TEXTS.seek}>
      <p>{TEXTS.seekText(format.count(live?.ready), format.count(live?.unacked))}</p>
      <form class="row" onSubmit={(event) => void submit(event)}>
        <Choice label={TEXTS.where} value={how} options={TEXTS.hows} onChoose={setHow} />
        {(how === "offset" || how === "age" || how === "time") && (
          <TextField
            label={TEXTS.values[how]}
            hint={TEXTS.hints[how]}
            type={how === "time" ? "datetime-local" : "text"}
            required
            value={value}
            onText={setValue}
          />
        )}
        {isInPreview && (
          <button type="button" disabled={isBusy || !place} onClick={() => void look()}>
            {TEXTS.preview}
          </button>
        )}
        <button type="submit" class="primary" disabled={isBusy || !place}>
          {TEXTS.seekVerb}
        </button>
      </form>
      {preview && (
        <>
          <p>{preview.items.length === 0 ? TEXTS.previewNothing : TEXTS.previewText}</p>
          <ul class="sample">
            {preview.items.map((it) => (
              <li key={it.position}>
                {it.routing_key} <code>{it.payload}</code>
              </li>
            ))}
          </ul>
        </>
      )}
    </Card>
  );
}
