// Which routing keys of a topic exchange a user may publish and bind.

import { change, path } from "../../core/api";
import { useQuery } from "../../core/query";
import type { TopicPermission } from "../../types";
import { TextField, VhostField, useFirstVhost } from "../../ui/fields";
import { ActButton, RowForm, useDraft } from "../../ui/form";
import { ListCard } from "../../ui/list";
import type { Column } from "../../ui/table";
import { words } from "../../words";

const TEXTS = words.users;

const RIGHTS = ["write", "read"] as const;

const COLUMNS: readonly Column<TopicPermission>[] = [
  { id: "vhost", head: words.vhost, by: (it) => it.vhost },
  { id: "exchange", head: TEXTS.exchange, by: (it) => it.exchange },
  ...RIGHTS.map((right) => ({
    id: right,
    head: TEXTS.topicRights[right],
    cell: (it: TopicPermission) => <code>{it[right] || TEXTS.noRight}</code>,
  })),
];

const TAKE: Column<TopicPermission> = {
  id: "take",
  head: "",
  cell: ({ vhost, user, exchange }) => (
    <ActButton
      verb={TEXTS.take}
      act={() => change("DELETE", path("topic-permissions", vhost, user, exchange))}
      done={TEXTS.changed(user)}
      isDanger
    />
  ),
};

export function TopicPermissions({ name, mayChange }: { name: string; mayChange: boolean }) {
  return (
    <ListCard
      id="t"
      title={TEXTS.topics}
      of={useQuery<TopicPermission[]>(path("users", name, "topic-permissions"))}
      rows={(all) => all}
      columns={mayChange ? [...COLUMNS, TAKE] : COLUMNS}
      keyOf={(it) => `${it.vhost}\u0000${it.exchange}`}
      order="vhost,exchange"
      empty={<p>{TEXTS.noTopic}</p>}
    >
      {mayChange && <Give name={name} />}
    </ListCard>
  );
}

function Give({ name }: { name: string }) {
  const first = useFirstVhost();
  const [draft, put, bind] = useDraft({
    vhost: "",
    exchange: "amq.topic",
    write: "^{username}\\.",
    read: ".*",
  });
  const { vhost, ...body } = { ...draft, vhost: draft.vhost || first };
  return (
    <RowForm
      verb={TEXTS.give}
      act={() => change("PUT", path("topic-permissions", vhost, name), body)}
      done={TEXTS.changed(name)}
    >
      <VhostField value={vhost} onChoose={(it) => put({ vhost: it })} />
      <TextField label={TEXTS.exchange} required {...bind.text("exchange")} />
      {RIGHTS.map((right) => (
        <TextField
          key={right}
          label={TEXTS.topicRights[right]}
          hint={right === "write" ? TEXTS.topicsHint : undefined}
          value={body[right]}
          onText={(text) => put({ [right]: text })}
        />
      ))}
    </RowForm>
  );
}
