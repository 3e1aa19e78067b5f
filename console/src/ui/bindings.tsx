// Bindings: a table, and a form that makes one.

import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import type { Binding } from "../types";
import { words } from "../words";
import { useAct } from "./act";
import { SelectField, TextField } from "./fields";
import { jsonObject } from "./json";
import { Arguments, Card, ExchangeLink, QueueLink } from "./parts";
import { Table, type Column } from "./table";

const TEXTS = words.bindings;

const DEFAULT = "amq.default";

function bindingPath(binding: Binding): string {
  const kind = binding.destination_type === "queue" ? "q" : "e";
  return path(
    "bindings",
    binding.vhost,
    "e",
    binding.source || DEFAULT,
    kind,
    binding.destination,
    binding.properties_key,
  );
}

function columns(mayChange: boolean): Column<Binding>[] {
  const shown: Column<Binding>[] = [
    {
      id: "source",
      head: TEXTS.source,
      by: (it) => it.source,
      cell: (it) => <ExchangeLink vhost={it.vhost} name={it.source} />,
    },
    {
      id: "key",
      head: TEXTS.key,
      by: (it) => it.routing_key,
      cell: (it) => <code>{it.routing_key}</code>,
    },
    {
      id: "destination",
      head: TEXTS.destination,
      by: (it) => it.destination,
      cell: (it) =>
        it.destination_type === "queue" ? (
          <QueueLink vhost={it.vhost} name={it.destination} />
        ) : (
          <ExchangeLink vhost={it.vhost} name={it.destination} />
        ),
    },
    {
      id: "arguments",
      head: words.arguments,
      cell: (it) => <Arguments of={it.arguments} />,
      isWide: true,
    },
  ];
  if (mayChange)
    shown.push({
      id: "unbind",
      head: "",
      cell: (it) => it.source !== "" && <Unbind binding={it} />,
    });
  return shown;
}

function Unbind({ binding }: { binding: Binding }) {
  const { isBusy, run } = useAct();
  const unbind = () => run(() => change("DELETE", bindingPath(binding)), TEXTS.unbound);
  return (
    <button type="button" class="small danger" disabled={isBusy} onClick={() => void unbind()}>
      {TEXTS.unbind}
    </button>
  );
}

interface ListProps {
  title: string;
  bindings: readonly Binding[];
  mayChange: boolean;
  id: string;
}

export function BindingList({ title, bindings, mayChange, id }: ListProps) {
  return (
    <Card title={title}>
      <Table
        id={id}
        label={title}
        columns={columns(mayChange)}
        rows={bindings}
        keyOf={(it) =>
          `${it.source}\u0000${it.destination_type}${it.destination}\u0000${it.properties_key}`
        }
        empty={<p>{TEXTS.nothing}</p>}
      />
    </Card>
  );
}

/** Binds to, or from, what the page is about: the other end is to be said. */
export function BindForm({
  vhost,
  queue,
  exchange,
}: {
  vhost: string;
  queue?: string;
  exchange?: string;
}) {
  const [other, setOther] = useState("");
  const [kind, setKind] = useState<"q" | "e">("q");
  const [key, setKey] = useState("");
  const [more, setMore] = useState("");
  const { isBusy, run } = useAct();
  const table = jsonObject(more);
  const to =
    queue !== undefined
      ? path("bindings", vhost, "e", other, "q", queue)
      : path("bindings", vhost, "e", exchange ?? "", kind, other);
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = { routing_key: key, arguments: table };
    if (table && (await run(() => change("POST", to, body), TEXTS.bound))) setKey("");
  };
  return (
    <Card title={queue !== undefined ? TEXTS.bindQueue : TEXTS.bindExchange}>
      <form class="row" onSubmit={(event) => void submit(event)}>
        {queue === undefined && (
          <SelectField
            label={TEXTS.kind}
            value={kind}
            options={[
              ["q", TEXTS.toQueue],
              ["e", TEXTS.toExchange],
            ]}
            onChoose={setKind}
          />
        )}
        <TextField
          label={queue !== undefined ? TEXTS.source : words.name}
          required
          value={other}
          onText={setOther}
        />
        <TextField label={TEXTS.key} value={key} onText={setKey} />
        <TextField
          label={words.arguments}
          hint={table ? undefined : words.errors.json}
          value={more}
          placeholder="{}"
          onText={setMore}
        />
        <button type="submit" disabled={isBusy || !table}>
          {TEXTS.bind}
        </button>
      </form>
    </Card>
  );
}
