// One message as a whole: payload, properties, who holds it, where it has died.

import { useEffect, useState } from "preact/hooks";
import * as format from "../../core/format";
import { go } from "../../core/place";
import { bytesOf, formsOf, shownAs, unpacked, type Form, type Payload } from "../../core/payload";
import { useQuery } from "../../core/query";
import { mayPurge, role } from "../../core/session";
import { withAsked } from "../../core/api";
import type { Message, Messages, Queue } from "../../types";
import { Dialog } from "../../ui/dialog";
import { Choice } from "../../ui/fields";
import { Copy, Facts, queueHref, valueText } from "../../ui/parts";
import { template } from "../../ui/publish";
import { words } from "../../words";
import { EditDialog } from "../dead/edit";
import { HolderOf } from "../held/holder";
import { messagesPath } from "./looked";
import { ProtobufPayload, jsonOf, useProtobuf } from "./protobuf";

const TEXTS = words.messagesTab;
const { facts } = TEXTS;

/** Of one message so much is asked for. */
const WHOLE_BYTES = 4 * 1024 * 1024;

interface Props {
  queue: Queue;
  message: Message;
  partition: string;
  onClose: () => void;
  /** The message was sent elsewhere. */
  onGone: () => void;
}

export function MessageDialog({ queue, message, partition, onClose, onGone }: Props) {
  const [isEdited, setEdited] = useState(false);
  const { vhost, name } = queue;
  const asked = { from: message.position, count: 1, truncate: WHOLE_BYTES, partition };
  const { data } = useQuery<Messages>(
    message.truncated ? withAsked(messagesPath(vhost, name), asked) : undefined,
  );
  const whole = data?.items.find((it) => it.position === message.position) ?? message;
  const publishAgain = () => {
    template.value = whole;
    go(queueHref(vhost, name, "publish"));
  };
  if (isEdited) {
    const gone = () => {
      onClose();
      onGone();
    };
    return (
      <EditDialog
        vhost={vhost}
        queue={name}
        message={whole}
        onClose={() => setEdited(false)}
        onDone={gone}
      />
    );
  }
  const canEdit = mayPurge(vhost, name) && whole.dead_letter_history.length > 0;
  return (
    <Dialog title={TEXTS.one(message.position, name)} onClose={onClose} isWide>
      <Content queue={queue} message={whole} />
      <h3>{TEXTS.about}</h3>
      <Facts of={factsOf(whole)} />
      {whole.holder && <HolderOf holder={whole.holder} isWhole />}
      <Values title={TEXTS.headers} of={headersOf(whole)} />
      <Values title={TEXTS.properties} of={withoutHeaders(whole)} />
      <Deaths of={whole.dead_letter_history} />
      <footer>
        <Copy text={whole.payload} label={TEXTS.copyPayload} />
        <Copy text={JSON.stringify(whole, null, 2)} label={TEXTS.copyMessage} />
        {canEdit && (
          <button type="button" onClick={() => setEdited(true)}>
            {TEXTS.edit}
          </button>
        )}
        {role.value.changes && (
          <button type="button" onClick={publishAgain}>
            {TEXTS.publishAgain}
          </button>
        )}
      </footer>
    </Dialog>
  );
}

function factsOf(message: Message): [string, string][] {
  const known: [string, string | null | undefined][] = [
    [facts.state, TEXTS.states[message.state]],
    [
      facts.enqueued,
      message.enqueued_at === null ? TEXTS.unknownTime : format.time(message.enqueued_at),
    ],
    [facts.expires, message.expires_at === null ? null : format.time(message.expires_at)],
    [facts.due, message.due_at === undefined ? null : format.time(message.due_at)],
    [facts.exchange, message.exchange || words.exchanges.byDefault],
    [facts.key, message.routing_key],
    [facts.priority, message.priority > 0 ? String(message.priority) : null],
    [facts.returns, message.returns === null ? null : format.count(message.returns)],
    [facts.reason, message.reason],
  ];
  return known.filter((it): it is [string, string] => it[1] !== null && it[1] !== undefined);
}

/** Its deaths are listed below the others. */
function headersOf({ properties, dead_letter_history }: Message): Record<string, unknown> {
  const { "x-death": deaths, ...others } = properties.headers ?? {};
  return dead_letter_history.length > 0 || deaths === undefined
    ? others
    : { ...others, "x-death": deaths };
}

function withoutHeaders({ properties }: Message): Record<string, unknown> {
  const { headers: _, ...others } = properties;
  return others;
}

function usePayload({ payload, payload_encoding }: Message): Payload | undefined {
  const [known, setKnown] = useState<Payload | undefined>(undefined);
  useEffect(() => {
    let isOver = false;
    void unpacked(bytesOf(payload, payload_encoding)).then((it) => isOver || setKnown(it));
    return () => {
      isOver = true;
    };
  }, [payload, payload_encoding]);
  return known;
}

/** How a payload is shown: what the bytes say of themselves, or by a type that somebody brought along. */
type Shown = Form | "protobuf";

function Content({ queue, message }: { queue: Queue; message: Message }) {
  const payload = usePayload(message);
  const [chosen, setChosen] = useState<Shown | undefined>(undefined);
  const protobuf = useProtobuf(queue);
  if (!payload) return null;
  const told = protobuf.tell(message, payload.bytes);
  const others: Shown[] = formsOf(payload.bytes);
  const isRead = jsonOf(told) !== undefined;
  const forms: Shown[] = isRead ? ["protobuf", ...others] : [...others, "protobuf"];
  const offered = protobuf.reader ? forms : others;
  const form = chosen !== undefined && offered.includes(chosen) ? chosen : (offered[0] ?? "hex");
  const mayBeProtobuf = !protobuf.reader && message.payload_encoding === "base64";
  return (
    <>
      <div class="under-head">
        <Choice
          label={TEXTS.form}
          value={form}
          options={offered.map((it) => [it, TEXTS.forms[it]])}
          onChoose={setChosen}
        />
        <span class="dim">{format.bytes(message.payload_bytes)}</span>
        {payload.packedBytes !== undefined && (
          <span class="dim">{TEXTS.gzip(format.bytes(payload.bytes.length))}</span>
        )}
        {message.truncated && <span class="dim">{TEXTS.truncated}</span>}
        {mayBeProtobuf && <span class="dim">{TEXTS.noDescriptor}</span>}
      </div>
      {form === "protobuf" && protobuf.reader && told ? (
        <ProtobufPayload queue={queue} reader={protobuf.reader} message={message} told={told} />
      ) : (
        <pre class="payload" tabIndex={0} aria-label={heads.payload}>
          {form === "protobuf" ? "" : shownAs(form, payload.bytes)}
        </pre>
      )}
    </>
  );
}

const { heads } = TEXTS;

function Values({ title, of }: { title: string; of: Record<string, unknown> }) {
  const all = Object.entries(of);
  if (all.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <Facts of={all.map(([name, value]): [string, string] => [name, valueText(value)])} />
    </>
  );
}

/** When it died there the last time, and how it had come. The time is in seconds, as AMQP has it. */
function wayOf(death: Record<string, unknown>): string {
  const { exchange, time, "routing-keys": keys } = death;
  const names = Array.isArray(keys) ? keys.map(valueText).join(", ") : "";
  const from = typeof exchange === "string" ? exchange || words.exchanges.byDefault : "";
  const way = from === "" ? "" : TEXTS.deathWay(from, names);
  return typeof time === "number" ? `${way}, ${format.time(time * 1000)}` : way;
}

/** An entry of `x-death`. */
function Deaths({ of }: { of: Record<string, unknown>[] }) {
  if (of.length === 0) return null;
  return (
    <>
      <h3>{TEXTS.deaths}</h3>
      <ul class="lines">
        {of.map((death, index) => (
          <li key={index}>
            {TEXTS.death(valueText(death.queue), valueText(death.reason), Number(death.count ?? 1))}
            {wayOf(death)}
          </li>
        ))}
      </ul>
    </>
  );
}
