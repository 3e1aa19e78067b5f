// Declares a queue, a stream or a subscription.

import { useState } from "preact/hooks";
import { change, path } from "../../core/api";
import { go, said } from "../../core/place";
import { useAct } from "../../ui/act";
import { Dialog } from "../../ui/dialog";
import { Field, SelectField, TextField } from "../../ui/fields";
import { queueHref } from "../../ui/parts";
import { jsonObject } from "../../ui/json";
import { words } from "../../words";

const TEXTS = words.queues.declare;

type Kind = keyof typeof TEXTS.kinds;

const KINDS = Object.entries(TEXTS.kinds) as [Kind, string][];

export function Declare({ vhosts, onClose }: { vhosts: readonly string[]; onClose: () => void }) {
  const [vhost, setVhost] = useState(said("vhost") || (vhosts[0] ?? "/"));
  const [name, setName] = useState("");
  const [kind, setKind] = useState<Kind>("quorum");
  const [stream, setStream] = useState("");
  const [more, setMore] = useState("{}");
  const { isBusy, run } = useAct();
  const table = jsonObject(more);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!table) return;
    const of = kind === "subscription" ? { "x-stream": stream } : {};
    const body = { durable: true, arguments: { "x-queue-type": kind, ...of, ...table } };
    if (!(await run(() => change("PUT", path("queues", vhost, name), body), TEXTS.done(name))))
      return;
    onClose();
    go(queueHref(vhost, name));
  };
  return (
    <Dialog title={TEXTS.title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <SelectField
          label={words.vhost}
          value={vhost}
          options={vhosts.map((it) => [it, it])}
          onChoose={setVhost}
        />
        <TextField label={words.name} required value={name} onText={setName} />
        <SelectField
          label={TEXTS.kind}
          value={kind}
          options={KINDS}
          hint={TEXTS.hints[kind]}
          onChoose={setKind}
        />
        {kind === "subscription" && (
          <TextField
            label={TEXTS.stream}
            hint={TEXTS.streamHint}
            required
            value={stream}
            onText={setStream}
          />
        )}
        <Field label={words.arguments} hint={table ? TEXTS.argumentsHint : words.errors.json}>
          <textarea
            rows={4}
            spellcheck={false}
            value={more}
            onInput={(it) => setMore(it.currentTarget.value)}
          />
        </Field>
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy || !table}>
            {TEXTS.verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
