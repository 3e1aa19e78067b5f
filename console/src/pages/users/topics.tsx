// Which routing keys of a topic exchange a user may publish and bind.

import { useState } from "preact/hooks";
import { change, path } from "../../core/api";
import { useVhosts } from "../../core/broker";
import { useQuery } from "../../core/query";
import type { TopicPermission } from "../../types";
import { useAct } from "../../ui/act";
import { SelectField, TextField } from "../../ui/fields";
import { Card, Loaded } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";

const TEXTS = words.users;

const RIGHTS = ["write", "read"] as const;

const COLUMNS: readonly Column<TopicPermission>[] = [
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, cell: (it) => it.vhost },
  { id: "exchange", head: TEXTS.exchange, by: (it) => it.exchange, cell: (it) => it.exchange },
  ...RIGHTS.map((right) => ({
    id: right,
    head: TEXTS.topicRights[right],
    cell: (it: TopicPermission) => <code>{it[right] || TEXTS.noRight}</code>,
  })),
];

const TAKE: Column<TopicPermission> = { id: "take", head: "", cell: (it) => <Take of={it} /> };

export function TopicPermissions({ name, mayChange }: { name: string; mayChange: boolean }) {
  const query = useQuery<TopicPermission[]>(path("users", name, "topic-permissions"));
  return (
    <Card title={TEXTS.topics}>
      <Loaded of={query}>
        {(all) => (
          <Table
            id="t"
            label={TEXTS.topics}
            columns={mayChange ? [...COLUMNS, TAKE] : COLUMNS}
            rows={all}
            keyOf={(it) => `${it.vhost}\u0000${it.exchange}`}
            order="vhost,exchange"
            empty={<p>{TEXTS.noTopic}</p>}
          />
        )}
      </Loaded>
      {mayChange && <Give name={name} />}
    </Card>
  );
}

function Take({ of: { vhost, user, exchange } }: { of: TopicPermission }) {
  const { isBusy, run } = useAct();
  const to = path("topic-permissions", vhost, user, exchange);
  const take = () => run(() => change("DELETE", to), TEXTS.changed(user));
  return (
    <button type="button" class="small danger" disabled={isBusy} onClick={() => void take()}>
      {TEXTS.take}
    </button>
  );
}

function Give({ name }: { name: string }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState("");
  const [exchange, setExchange] = useState("amq.topic");
  const [rights, setRights] = useState({ write: "^{username}\\.", read: ".*" });
  const { isBusy, run } = useAct();
  const chosen = vhost || (vhosts[0] ?? "/");
  const submit = async (event: Event) => {
    event.preventDefault();
    const to = path("topic-permissions", chosen, name);
    await run(() => change("PUT", to, { exchange, ...rights }), TEXTS.changed(name));
  };
  return (
    <form class="row" onSubmit={(event) => void submit(event)}>
      <SelectField
        label={words.vhost}
        value={chosen}
        options={vhosts.map((it) => [it, it])}
        onChoose={setVhost}
      />
      <TextField label={TEXTS.exchange} required value={exchange} onText={setExchange} />
      {RIGHTS.map((right) => (
        <TextField
          key={right}
          label={TEXTS.topicRights[right]}
          hint={right === "write" ? TEXTS.topicsHint : undefined}
          value={rights[right]}
          onText={(text) => setRights({ ...rights, [right]: text })}
        />
      ))}
      <button type="submit" disabled={isBusy}>
        {TEXTS.give}
      </button>
    </form>
  );
}
