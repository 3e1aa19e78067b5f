// Declares a queue, a stream or a subscription.

import { change, path } from "../../core/api";
import { go } from "../../core/place";
import { JsonField, SelectField, TextField, VhostField, useFirstVhost } from "../../ui/fields";
import { FormDialog, useDraft } from "../../ui/form";
import { jsonObject } from "../../ui/json";
import { queueHref } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.queues.declare;

type Kind = keyof typeof TEXTS.kinds;

const KINDS = Object.entries(TEXTS.kinds) as [Kind, string][];

interface Draft {
  vhost: string;
  name: string;
  kind: Kind;
  stream: string;
  more: string;
}

export function Declare({ onClose }: { onClose: () => void }) {
  const vhost = useFirstVhost();
  const [draft, , bind] = useDraft<Draft>({
    vhost,
    name: "",
    kind: "quorum",
    stream: "",
    more: "{}",
  });
  const { name, kind, stream } = draft;
  const table = jsonObject(draft.more);
  const source = kind === "subscription" ? { "x-stream": stream } : {};
  const body = { durable: true, arguments: { "x-queue-type": kind, ...source, ...table } };
  return (
    <FormDialog
      title={TEXTS.title}
      verb={TEXTS.verb}
      isReady={table !== undefined}
      act={() => change("PUT", path("queues", draft.vhost, name), body)}
      done={TEXTS.done(name)}
      onClose={onClose}
      onDone={() => go(queueHref(draft.vhost, name))}
    >
      <VhostField {...bind.choice("vhost")} />
      <TextField label={words.name} required {...bind.text("name")} />
      <SelectField
        label={TEXTS.kind}
        {...bind.choice("kind")}
        options={KINDS}
        hint={TEXTS.hints[kind]}
      />
      {kind === "subscription" && (
        <TextField label={TEXTS.stream} hint={TEXTS.streamHint} required {...bind.text("stream")} />
      )}
      <JsonField
        label={words.arguments}
        hint={TEXTS.argumentsHint}
        rows={4}
        {...bind.text("more")}
      />
    </FormDialog>
  );
}
