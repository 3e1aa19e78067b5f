// Bindings: a table, and a form that makes one.

import { change, path } from "../core/api";
import type { Query } from "../core/query";
import type { Binding } from "../types";
import { words } from "../words";
import { JsonField, SelectField, TextField } from "./fields";
import { ActButton, RowForm, useDraft } from "./form";
import { jsonObject } from "./json";
import { ListCard } from "./list";
import { Arguments, Card, ExchangeLink, QueueLink } from "./parts";
import type { Column } from "./table";

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
      cell: (it) => <Arguments of={it.arguments} none="" />,
      isWide: true,
      wraps: true,
    },
  ];
  const unbind = (it: Binding) =>
    it.source !== "" && (
      <ActButton
        verb={TEXTS.unbind}
        act={() => change("DELETE", bindingPath(it))}
        done={TEXTS.unbound}
        isDanger
      />
    );
  return mayChange ? [...shown, { id: "unbind", head: "", cell: unbind }] : shown;
}

interface ListProps {
  title: string;
  of: Query<Binding[]>;
  mayChange: boolean;
  id: string;
}

export function BindingList({ mayChange, ...list }: ListProps) {
  return (
    <ListCard
      {...list}
      columns={columns(mayChange)}
      rows={(all) => all}
      keyOf={(it) =>
        `${it.source}\u0000${it.destination_type}${it.destination}\u0000${it.properties_key}`
      }
      empty={<p>{TEXTS.nothing}</p>}
    />
  );
}

interface BindProps {
  vhost: string;
  queue?: string;
  exchange?: string;
}

/** Binds to, or from, what the page is about: the other end is to be said. */
export function BindForm({ vhost, queue, exchange = "" }: BindProps) {
  const [draft, put, bind] = useDraft({ other: "", kind: "q" as "q" | "e", key: "", more: "" });
  const { other, kind, key, more } = draft;
  const table = jsonObject(more);
  const isOfQueue = queue !== undefined;
  const to = isOfQueue
    ? path("bindings", vhost, "e", other, "q", queue)
    : path("bindings", vhost, "e", exchange, kind, other);
  return (
    <Card title={isOfQueue ? TEXTS.bindQueue : TEXTS.bindExchange}>
      <RowForm
        verb={TEXTS.bind}
        isReady={table !== undefined}
        act={() => change("POST", to, { routing_key: key, arguments: table })}
        done={TEXTS.bound}
        onDone={() => put({ key: "" })}
      >
        {!isOfQueue && (
          <SelectField
            label={TEXTS.kind}
            value={kind}
            options={[
              ["q", TEXTS.toQueue],
              ["e", TEXTS.toExchange],
            ]}
            onChoose={(it) => put({ kind: it })}
          />
        )}
        <TextField label={isOfQueue ? TEXTS.source : words.name} required {...bind.text("other")} />
        <TextField label={TEXTS.key} {...bind.text("key")} />
        <JsonField label={words.arguments} {...bind.text("more")} />
      </RowForm>
    </Card>
  );
}
