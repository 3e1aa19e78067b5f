// Sends one dead letter back with another payload or other headers, in one step.

import { useState } from "preact/hooks";
import { change, path } from "../../core/api";
import type { Message, Retry } from "../../types";
import { useAct } from "../../ui/act";
import { Dialog } from "../../ui/dialog";
import { AreaField, JsonField, SelectField } from "../../ui/fields";
import { jsonObject } from "../../ui/json";
import { tell } from "../../ui/notice";
import { ownHeaders } from "../../ui/publish";
import { words } from "../../words";
import { FIRST, type Plan, RetryResult, TargetFields, finished, targetOf } from "./retry";

const TEXTS = words.messagesTab;

/** So often it is looked whether the message is sent, before it is left to itself. */
const LOOKS_MAX = 20;

export interface Edited {
  payload: string;
  encoding: "string" | "base64";
  headers: string;
}

/** What was changed, as the API takes it. What was not, the message keeps. */
export function editOf(before: Edited, now: Edited): Record<string, unknown> {
  const isPayload = now.payload !== before.payload || now.encoding !== before.encoding;
  return {
    ...(isPayload ? { payload: now.payload, payload_encoding: now.encoding } : {}),
    ...(now.headers === before.headers ? {} : { headers: jsonObject(now.headers) ?? {} }),
  };
}

interface Props {
  vhost: string;
  queue: string;
  message: Message;
  onClose: () => void;
  onDone: () => void;
}

export function EditDialog({ vhost, queue, message, onClose, onDone }: Props) {
  const [before] = useState<Edited>(() => ({
    payload: message.payload,
    encoding: message.payload_encoding,
    headers: JSON.stringify(ownHeaders(message), null, 2),
  }));
  const [edited, setEdited] = useState(before);
  const [plan, setPlan] = useState<Plan>(FIRST);
  const [told, setTold] = useState<Retry | undefined>(undefined);
  const { isBusy, run } = useAct();
  const put = (changes: Partial<Edited>) => {
    setEdited({ ...edited, ...changes });
    setTold(undefined);
  };
  const start = async (isDry: boolean) => {
    const positions = [message.position];
    const body = {
      ...targetOf(plan),
      positions,
      ...editOf(before, edited),
      dry_run: isDry,
    };
    const to = path("millrace", "queues", vhost, queue, "retry");
    return finished(await change<Retry>("POST", to, body), LOOKS_MAX);
  };
  const send = async () => {
    const retry = await start(false);
    setTold(retry);
    if (retry.state !== "running" && retry.sent === 0) return;
    tell(retry.sent > 0 ? TEXTS.editSent : TEXTS.editRuns);
    onDone();
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void run(send);
  };
  const canSend = !isBusy && jsonObject(edited.headers) !== undefined;
  return (
    <Dialog title={TEXTS.editTitle(message.position, queue)} onClose={onClose} isWide>
      <form onSubmit={submit}>
        <p class="dim">{TEXTS.editHint}</p>
        {message.truncated ? (
          <p>{TEXTS.truncated}</p>
        ) : (
          <>
            <AreaField
              label={words.publish.payload}
              value={edited.payload}
              onText={(payload) => put({ payload })}
            />
            <SelectField
              label={words.publish.encoding}
              value={edited.encoding}
              options={words.publish.encodings}
              onChoose={(encoding) => put({ encoding })}
            />
          </>
        )}
        <JsonField
          label={words.publish.headers}
          hint={TEXTS.editHeadersHint}
          rows={4}
          value={edited.headers}
          onText={(headers) => put({ headers })}
        />
        <TargetFields
          plan={plan}
          put={(changes) => {
            setPlan({ ...plan, ...changes });
            setTold(undefined);
          }}
        />
        {told && <RetryResult retry={told} />}
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button
            type="button"
            disabled={!canSend}
            onClick={() => void run(async () => setTold(await start(true)))}
          >
            {TEXTS.editWould}
          </button>
          <button type="submit" class="primary" disabled={!canSend}>
            {TEXTS.editSend}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
