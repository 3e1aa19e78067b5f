// Which setting is from where, and where dead letters go.

import { path } from "../../core/api";
import { href } from "../../core/place";
import { useQuery } from "../../core/query";
import type { DeadLettersTo, ExplainedQueue, Queue } from "../../types";
import { Arguments, Card, ExchangeLink, Loaded, QueueLink, Tag, valueText } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";

const TEXTS = words.queue.settings;

type Setting = ExplainedQueue["settings"][number];

const COLUMNS: readonly Column<Setting>[] = [
  {
    id: "setting",
    head: TEXTS.setting,
    by: (it) => it.setting,
    cell: (it) => <code>{it.setting}</code>,
  },
  { id: "value", head: TEXTS.value, cell: (it) => valueText(it.value) },
  { id: "from", head: TEXTS.from, cell: (it) => it.from.join(", ") },
  {
    id: "overruled",
    head: TEXTS.overruled,
    cell: (it) => it.overruled.map(valueText).join(", ") || words.none,
    isWide: true,
  },
];

export function Settings({ queue }: { queue: Queue }) {
  const { vhost, name } = queue;
  const query = useQuery<ExplainedQueue>(path("millrace", "explain", vhost, "queues", name));
  return (
    <Loaded of={query} what={TEXTS.title}>
      {(told) => (
        <>
          <Card title={TEXTS.title}>
            <Table
              label={TEXTS.title}
              columns={COLUMNS}
              rows={told.settings}
              keyOf={(it) => it.setting}
              empty={<p>{TEXTS.nothing}</p>}
            />
          </Card>
          <Card title={TEXTS.deadLetters}>
            <DeadLetters to={told.dead_letters} vhost={vhost} />
          </Card>
          <Card title={words.pages.policies}>
            <Matching policies={[...told.policies, ...told.operator_policies]} />
          </Card>
          <Card title={TEXTS.declared}>
            <Arguments of={queue.arguments} />
          </Card>
        </>
      )}
    </Loaded>
  );
}

function Matching({ policies }: { policies: ExplainedQueue["policies"] }) {
  if (policies.length === 0) return <p class="dim">{TEXTS.noPolicy}</p>;
  return (
    <ul class="lines">
      {policies.map((policy) => (
        <li key={policy.name}>
          <a href={href("/policies", { q: policy.name })}>{policy.name}</a>{" "}
          <code>{policy.pattern}</code>
          {policy.counts && <Tag tone="good">{TEXTS.counts}</Tag>}{" "}
          <Arguments of={policy.definition} />
        </li>
      ))}
    </ul>
  );
}

export function DeadLetters({ to, vhost }: { to: DeadLettersTo | null; vhost: string }) {
  if (!to) return <p class="dim">{TEXTS.dropped}</p>;
  return (
    <p>
      {TEXTS.exchange} <ExchangeLink vhost={vhost} name={to.exchange} />
      {!to.is_there && <Tag tone="bad">{TEXTS.notThere}</Tag>}
      {to.routing_key === null ? ` ${TEXTS.ownKey}` : ` ${TEXTS.key(to.routing_key)}`}
      {to.queues?.map((name) => (
        <span key={name}>
          {" → "}
          <QueueLink vhost={vhost} name={name} />
        </span>
      ))}
    </p>
  );
}
