// Payloads in Protobuf: the files of descriptors that this browser keeps, the type that a queue's messages have, and
// what a payload says by it.

import { useState } from "preact/hooks";
import {
  BYTES_MAX,
  FILES_MAX,
  chooseType,
  chosenType,
  files,
  keepFile,
  namedType,
  refusalOf,
  removeFile,
  useReader,
} from "../../core/descriptors";
import * as format from "../../core/format";
import type { Decoded, Reader } from "../../core/protobuf";
import type { Message, Queue } from "../../types";
import { Dialog } from "../../ui/dialog";
import { SelectField } from "../../ui/fields";
import { Opener } from "../../ui/form";
import { Copy } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.protobuf;

type Place = Pick<Queue, "vhost" | "name">;

/** What a payload is by its type. */
export interface Told {
  /** `undefined`: neither the viewer nor the message says it. */
  type: string | undefined;
  /** `undefined`: there is no type, no file has it, or the payload is cut. */
  decoded: Decoded | undefined;
}

export interface Protobuf {
  reader: Reader | undefined;
  hasFailed: boolean;
  tell: (message: Message, bytes: Uint8Array) => Told | undefined;
}

/** Reads messages of a queue by the type that was chosen for it, or that each message names. */
export function useProtobuf({ vhost, name }: Place): Protobuf {
  const loaded = useReader();
  const chosen = chosenType(vhost, name);
  const reader = typeof loaded === "string" ? undefined : loaded;
  const told = (message: Message, bytes: Uint8Array): Told | undefined => {
    if (!reader) return undefined;
    const type = chosen === "" ? namedType(message.properties, reader.has) : chosen;
    const canRead = type !== undefined && reader.has(type) && !message.truncated;
    return { type, decoded: canRead ? reader.decode(type, bytes) : undefined };
  };
  return { reader, hasFailed: loaded === "failed", tell: told };
}

/** The JSON of a payload, if it is read. */
export const jsonOf = (told: Told | undefined): unknown =>
  told?.decoded?.fault === undefined ? told?.decoded?.json : undefined;

interface TypeProps {
  queue: Place;
  reader: Reader;
}

function TypeField({ queue: { vhost, name }, reader }: TypeProps) {
  const chosen = chosenType(vhost, name);
  const types = reader.types.map((it): [string, string] => [it, it]);
  if (chosen !== "" && !reader.has(chosen)) types.unshift([chosen, TEXTS.gone(chosen)]);
  return (
    <SelectField
      label={TEXTS.type(name)}
      hint={TEXTS.typeHint}
      value={chosen}
      options={[["", TEXTS.asNamed], ...types]}
      onChoose={(type) => chooseType(vhost, name, type)}
    />
  );
}

interface ShownProps extends TypeProps {
  message: Message;
  told: Told;
}

/** A payload by its type, or in words why not. */
export function ProtobufPayload({ queue, reader, message, told }: ShownProps) {
  return (
    <>
      <TypeField queue={queue} reader={reader} />
      <Read message={message} told={told} reader={reader} />
    </>
  );
}

function Read({ message, told: { type, decoded }, reader }: Omit<ShownProps, "queue">) {
  if (type === undefined) return <p>{TEXTS.noType}</p>;
  if (!reader.has(type)) return <p class="fault">{TEXTS.notThere(type)}</p>;
  if (message.truncated || !decoded) return <p class="fault">{TEXTS.cut}</p>;
  if (decoded.fault !== undefined) return <p class="fault">{TEXTS.fault(type, decoded.fault)}</p>;
  const text = JSON.stringify(decoded.json, null, 2);
  return (
    <>
      <p class="dim">
        {TEXTS.readAs(type)} {decoded.unknownFields > 0 && TEXTS.unknown(decoded.unknownFields)}{" "}
        <Copy text={text} label={TEXTS.copy} />
      </p>
      <pre class="payload" tabIndex={0} aria-label={words.messagesTab.heads.payload}>
        {text}
      </pre>
    </>
  );
}

/** The button that leads to the files, and to the type of the queue. */
export function ProtobufButton({ queue }: { queue: Place }) {
  return (
    <Opener verb={TEXTS.button}>{(close) => <FilesDialog queue={queue} onClose={close} />}</Opener>
  );
}

/** Keeps a file. Answers what came of it: a dialog hides notices behind it. */
async function take(file: File): Promise<{ text: string; isFault: boolean }> {
  const { name, size } = file;
  const refusal = refusalOf(files.peek(), name, size);
  if (refusal !== undefined) return { text: TEXTS.refused[refusal](name), isFault: true };
  try {
    const { typesIn } = await import("../../core/protobuf");
    const bytes = new Uint8Array(await file.arrayBuffer());
    const types = typesIn(bytes).length;
    keepFile(name, bytes, types);
    return { text: TEXTS.kept(name, types), isFault: false };
  } catch (error) {
    const why = error instanceof Error ? error.message : "";
    return { text: TEXTS.notRead(name, why), isFault: true };
  }
}

function FilesDialog({ queue, onClose }: { queue: Place; onClose: () => void }) {
  const { reader, hasFailed } = useProtobuf(queue);
  const [isBusy, setBusy] = useState(false);
  const [told, setTold] = useState<Awaited<ReturnType<typeof take>> | undefined>(undefined);
  const choose = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    if (!file) return;
    setBusy(true);
    setTold(await take(file).finally(() => setBusy(false)));
    input.value = "";
  };
  return (
    <Dialog title={TEXTS.title} onClose={onClose}>
      <p>{TEXTS.text}</p>
      <pre tabIndex={0}>{TEXTS.snippet}</pre>
      <Files />
      <label class="field">
        <span>{TEXTS.add}</span>
        <input
          type="file"
          disabled={isBusy}
          onChange={(event) => void choose(event.currentTarget)}
        />
        <small>{TEXTS.bounds(FILES_MAX, format.bytes(BYTES_MAX))}</small>
      </label>
      <p role="status" class={told?.isFault ? "fault" : "dim"}>
        {told?.text}
      </p>
      {hasFailed && <p class="fault">{TEXTS.failed}</p>}
      {reader && <TypeField queue={queue} reader={reader} />}
      <footer>
        <button type="button" onClick={onClose}>
          {words.close}
        </button>
      </footer>
    </Dialog>
  );
}

function Files() {
  if (files.value.length === 0) return <p class="dim">{TEXTS.none}</p>;
  return (
    <ul class="lines" aria-label={TEXTS.files}>
      {files.value.map(({ name, bytes, types }) => (
        <li key={name}>
          <strong>{name}</strong> {TEXTS.file(format.bytes(bytes), types)}{" "}
          <button
            type="button"
            class="small"
            aria-label={TEXTS.removeOne(name)}
            onClick={() => removeFile(name)}
          >
            {TEXTS.remove}
          </button>
        </li>
      ))}
    </ul>
  );
}
