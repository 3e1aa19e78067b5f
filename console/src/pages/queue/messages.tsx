// Messages where they are: looking takes none of them, and flags none as redelivered.

import { useState } from "preact/hooks";
import * as format from "../../core/format";
import { bytesOf } from "../../core/payload";
import { said, show } from "../../core/place";
import { role } from "../../core/session";
import type { Message, Queue } from "../../types";
import { Choice, SelectField, TextField } from "../../ui/fields";
import { Age, Failure, Tag } from "../../ui/parts";
import { save } from "../../ui/save";
import { useSelected } from "../../ui/selected";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { RetryDialog } from "../dead/retry";
import { type Looked, type Sought, useLooked } from "./looked";
import { MessageDialog } from "./message";
import { type Protobuf, ProtobufButton, jsonOf, useProtobuf } from "./protobuf";

const TEXTS = words.messagesTab;
const { heads } = TEXTS;

const TONES = { ready: "calm", unacked: "warn", delayed: "calm", dead: "bad" } as const;

const COLUMNS: readonly Column<Message>[] = [
  {
    id: "position",
    head: heads.position,
    cell: (it) => (
      <button type="button" class="link" onClick={() => show({ message: it.position }, "push")}>
        {it.position}
      </button>
    ),
  },
  {
    id: "state",
    head: heads.state,
    cell: (it) => <Tag tone={TONES[it.state]}>{TEXTS.states[it.state]}</Tag>,
  },
  {
    id: "age",
    head: heads.age,
    cell: (it) => <Age at={it.enqueued_at} />,
    isWide: true,
  },
  { id: "key", head: heads.key, cell: (it) => it.routing_key, isWide: true },
  {
    id: "bytes",
    head: heads.bytes,
    cell: (it) => format.bytes(it.payload_bytes),
    isNumber: true,
    isWide: true,
  },
];

function payloadColumn(protobuf: Protobuf): Column<Message> {
  const cell = (it: Message) => <code class="preview">{decoded(it, protobuf) ?? preview(it)}</code>;
  return { id: "payload", head: heads.payload, cell };
}

/** The beginning of its JSON, if it is read as Protobuf. */
function decoded(message: Message, protobuf: Protobuf): string | undefined {
  if (!protobuf.reader) return undefined;
  const bytes = bytesOf(message.payload, message.payload_encoding);
  const json = jsonOf(protobuf.tell(message, bytes));
  return json === undefined ? undefined : JSON.stringify(json).slice(0, PREVIEW_LETTERS);
}

const PREVIEW_LETTERS = 160;

function preview({ payload, payload_encoding }: Message): string {
  if (payload_encoding === "base64") return TEXTS.binary(payload.slice(0, 40));
  return payload.slice(0, PREVIEW_LETTERS);
}

/** One message a line, as `millrace consume --format json` and other tools read it. */
const ndjson = (messages: readonly Message[]): string =>
  messages.map((message) => `${JSON.stringify(message)}\n`).join("");

export function MessagesTab({ queue }: { queue: Queue }) {
  const [round, setRound] = useState(0);
  const [selected, setSelected] = useSelected();
  const [isRetrying, setRetrying] = useState(false);
  const protobuf = useProtobuf(queue);
  const sought: Sought = {
    vhost: queue.vhost,
    name: queue.name,
    state: said("state"),
    partition: said("partition"),
    from: said("position"),
    since: said("since"),
    contains: said("contains"),
    header: said("header"),
  };
  const looked = useLooked(sought, round);
  const { items, error } = looked;
  const picked = items.filter((it) => selected.has(it.position));
  const chosen = picked.length > 0 ? picked : items;
  const open = items.find((it) => it.position === said("message"));
  const canRetry = role.value.changes && picked.some((it) => it.dead_letter_history.length > 0);
  return (
    <>
      <Filters
        key={said("position") + said("since")}
        queue={queue}
        onAgain={() => setRound(round + 1)}
      />
      <div class="under-head">
        <State looked={looked} />
        <button
          type="button"
          disabled={chosen.length === 0}
          onClick={() => save(`${queue.name}.ndjson`, ndjson(chosen))}
        >
          {TEXTS.save(chosen.length)}
        </button>
        <ProtobufButton queue={queue} />
        {canRetry && (
          <button type="button" onClick={() => setRetrying(true)}>
            {TEXTS.retry(picked.length)}
          </button>
        )}
      </div>
      {looked.isRough && <p class="dim">{TEXTS.rough}</p>}
      {error !== undefined && <Failure error={error} reload={() => setRound(round + 1)} />}
      <Table
        label={TEXTS.title}
        columns={[...COLUMNS, payloadColumn(protobuf)]}
        rows={items}
        keyOf={(it) => it.position}
        isMain
        selected={selected}
        onSelect={setSelected}
        empty={<p>{looked.isLooking ? words.loading : TEXTS.nothing}</p>}
      />
      {open && (
        <MessageDialog
          queue={queue}
          message={open}
          partition={sought.partition}
          onClose={() => show({ message: undefined })}
          onGone={() => setRound(round + 1)}
        />
      )}
      {isRetrying && (
        <RetryDialog
          vhost={queue.vhost}
          queue={queue.name}
          which={{ positions: picked.map((it) => it.position) }}
          title={TEXTS.retry(picked.length)}
          onClose={() => setRetrying(false)}
        />
      )}
    </>
  );
}

/** How far it has looked, and how it goes on. */
function State({ looked }: { looked: Looked }) {
  const { items, next, isLooking, answers, more, stop } = looked;
  return (
    <>
      <span class="dim" role="status">
        {isLooking
          ? TEXTS.looking(items.length, answers)
          : TEXTS.found(items.length, next === null)}
      </span>
      {isLooking && (
        <button type="button" onClick={stop}>
          {TEXTS.stop}
        </button>
      )}
      {!isLooking && next !== null && (
        <button type="button" onClick={more}>
          {TEXTS.more}
        </button>
      )}
    </>
  );
}

type Begin = (typeof TEXTS.begins)[number][0];

function beginOf(): Begin {
  if (said("since") !== "") return "time";
  const position = said("position");
  if (position === "last") return "last";
  return position === "" ? "first" : "position";
}

/** What the field beside the choice shows. */
function beginText(begin: Begin): string {
  if (begin === "time") return format.field(Date.parse(said("since")));
  return begin === "position" ? said("position") : "";
}

/** Where it begins, in the address. */
function beginAt(begin: Begin, text: string): { position: string; since: string } {
  const at = new Date(text);
  switch (begin) {
    case "first":
      return { position: "", since: "" };
    case "last":
      return { position: "last", since: "" };
    case "position":
      return { position: text, since: "" };
    case "time":
      return { position: "", since: Number.isNaN(at.getTime()) ? "" : at.toISOString() };
  }
}

function Filters({ queue, onAgain }: { queue: Queue; onAgain: () => void }) {
  const [text, setText] = useState(said("contains"));
  const [header, setHeader] = useState(said("header"));
  const [begin, setBegin] = useState(beginOf);
  const [at, setAt] = useState(() => beginText(beginOf()));
  const submit = (event: Event) => {
    event.preventDefault();
    show({ contains: text, header, ...beginAt(begin, at) }, "push");
    onAgain();
  };
  const partitions = queue.partitions ?? [];
  const states = TEXTS.filters;
  const state = states.find(([name]) => name === said("state"))?.[0] ?? "";
  return (
    <form class="row" onSubmit={submit}>
      <Choice
        label={heads.state}
        value={state}
        options={states}
        onChoose={(it) => show({ state: it })}
      />
      {partitions.length > 0 && (
        <SelectField
          label={TEXTS.partition}
          value={said("partition") || "0"}
          options={partitions.map((it) => [String(it.partition), String(it.partition)])}
          onChoose={(it) => show({ partition: it, position: undefined })}
        />
      )}
      <TextField
        label={TEXTS.contains}
        type="search"
        placeholder={TEXTS.containsHint}
        value={text}
        onText={setText}
        data-search
      />
      <TextField
        label={TEXTS.header}
        type="search"
        placeholder={TEXTS.headerHint}
        value={header}
        onText={setHeader}
      />
      <SelectField
        label={TEXTS.begin}
        value={begin}
        options={TEXTS.begins}
        onChoose={(it) => {
          setBegin(it);
          setAt(beginText(it));
        }}
      />
      {begin === "position" && (
        <TextField
          label={heads.position}
          hint={queue.type === "stream" ? TEXTS.positionHint : undefined}
          pattern="([0-9]+[.])?[0-9]+"
          required
          value={at}
          onText={setAt}
        />
      )}
      {begin === "time" && (
        <TextField
          label={TEXTS.time}
          type="datetime-local"
          step={1}
          required
          value={at}
          onText={setAt}
        />
      )}
      <button type="submit" class="primary">
        {TEXTS.look}
      </button>
    </form>
  );
}
