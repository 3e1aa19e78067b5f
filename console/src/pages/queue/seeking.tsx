// Sets a subscription to another place of its stream, after showing where that is and what comes there.

import { useState } from "preact/hooks";
import { ask, change, path } from "../../core/api";
import * as format from "../../core/format";
import { role } from "../../core/session";
import { queues } from "../../live/stream";
import type { Message, Messages, Places, Queue } from "../../types";
import { useAct } from "../../ui/act";
import { Choice, TextField } from "../../ui/fields";
import { Card } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { messagesPath } from "./looked";
import { type How, placeOf } from "./seek";

const TEXTS = words.stream;

/** Partitions of which the first messages are shown, and how many of each. */
const SHOWN = { partitions: 3, messages: 3 };

interface Preview {
  places: Places;
  messages: { partition: number; message: Message }[];
}

/** Where that is now, and for who sees messages the first of them. */
async function look(queue: Queue, how: How, value: string): Promise<Preview | undefined> {
  const place = placeOf(how, value);
  if (place === undefined) return undefined;
  const { vhost, name } = queue;
  const places = await ask<Places>(path("millrace", "queues", vhost, name, "position"), {
    ...place,
  });
  const messages: Preview["messages"] = [];
  if (!role.value.peeks) return { places, messages };
  const stream = String(queue.arguments["x-stream"] ?? "");
  const some = places.partitions.filter((it) => (it.messages ?? 0) > 0);
  for (const { partition, offset } of some.slice(0, SHOWN.partitions)) {
    const asked = { partition, from: (offset ?? 0) + 1, count: SHOWN.messages, truncate: 200 };
    const { items } = await ask<Messages>(messagesPath(vhost, stream), asked);
    messages.push(...items.map((message) => ({ partition, message })));
  }
  return { places, messages };
}

export function Seek({ queue }: { queue: Queue }) {
  const [how, setHow] = useState<How>("first");
  const [value, setValue] = useState("");
  const [preview, setPreview] = useState<Preview | undefined>(undefined);
  const { isBusy, run } = useAct();
  const place = placeOf(how, value);
  const { vhost, name } = queue;
  // What is shown is of the place that was chosen when it was asked for.
  const choose = (set: () => void) => {
    set();
    setPreview(undefined);
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    const to = path("millrace", "queues", vhost, name, "position");
    if (place) await run(() => change("PUT", to, place), TEXTS.sought(name));
  };
  const live = queues().find(vhost, name);
  return (
    <Card title={TEXTS.seek}>
      <p>{TEXTS.seekText(format.count(live?.ready), format.count(live?.unacked))}</p>
      <form class="row" onSubmit={(event) => void submit(event)}>
        <Choice
          label={TEXTS.where}
          value={how}
          options={TEXTS.hows}
          onChoose={(it) => choose(() => setHow(it))}
        />
        {(how === "offset" || how === "age" || how === "time") && (
          <TextField
            label={TEXTS.values[how]}
            hint={TEXTS.hints[how]}
            type={how === "time" ? "datetime-local" : "text"}
            required
            value={value}
            onText={(it) => choose(() => setValue(it))}
          />
        )}
        <button
          type="button"
          disabled={isBusy || !place}
          onClick={() => void run(async () => setPreview(await look(queue, how, value)))}
        >
          {TEXTS.preview}
        </button>
        <button type="submit" class="primary" disabled={isBusy || !place}>
          {TEXTS.seekVerb}
        </button>
      </form>
      {preview && <Shown of={preview} />}
    </Card>
  );
}

type Row = Places["partitions"][number];

const COLUMNS: readonly Column<Row>[] = [
  { id: "partition", head: TEXTS.partition, by: (it) => it.partition },
  { id: "offset", head: TEXTS.values.offset, by: (it) => it.offset, isNumber: true },
  { id: "messages", head: TEXTS.ahead, by: (it) => it.messages, isNumber: true },
];

function Shown({ of: { places, messages } }: { of: Preview }) {
  return (
    <div role="status">
      <p>{TEXTS.previewText(places.messages)}</p>
      <Table
        id="w"
        label={TEXTS.preview}
        columns={COLUMNS}
        rows={places.partitions}
        keyOf={(it) => String(it.partition)}
        empty={null}
      />
      <ul class="sample">
        {messages.map(({ partition, message }) => (
          <li key={`${partition} ${message.position}`}>
            {places.partitions.length > 1 && `${TEXTS.partition} ${partition}: `}
            {message.routing_key} <code>{message.payload}</code>
          </li>
        ))}
      </ul>
    </div>
  );
}
