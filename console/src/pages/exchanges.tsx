import { change, path } from "../core/api";
import { listPath } from "../core/broker";
import * as format from "../core/format";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { Exchange } from "../types";
import {
  CheckField,
  JsonField,
  SelectField,
  TextField,
  VhostField,
  same,
  useFirstVhost,
} from "../ui/fields";
import { FormDialog, Opener, useDraft } from "../ui/form";
import { jsonObject } from "../ui/json";
import { ListPage } from "../ui/list";
import { Arguments, ExchangeLink, Tag } from "../ui/parts";
import type { Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.exchanges;
const { heads } = TEXTS;

const COLUMNS: readonly Column<Exchange>[] = [
  {
    id: "name",
    head: words.name,
    by: (it) => it.name,
    cell: (it) => <ExchangeLink vhost={it.vhost} name={it.name} />,
  },
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, isWide: true },
  { id: "type", head: heads.type, by: (it) => it.type },
  {
    id: "in",
    head: heads.in,
    title: TEXTS.titles.in,
    by: (it) => it.message_stats?.publish_in_details.rate,
    cell: (it) => format.rate(it.message_stats?.publish_in_details.rate),
    isNumber: true,
  },
  {
    id: "out",
    head: heads.out,
    title: TEXTS.titles.out,
    by: (it) => it.message_stats?.publish_out_details.rate,
    cell: (it) => format.rate(it.message_stats?.publish_out_details.rate),
    isNumber: true,
    isWide: true,
  },
  { id: "features", head: heads.features, cell: (it) => <Features of={it} />, isWide: true },
  { id: "policy", head: heads.policy, by: (it) => it.policy, isWide: true },
  {
    id: "arguments",
    head: words.arguments,
    cell: (it) => <Arguments of={it.arguments} none="" />,
    isWide: true,
    wraps: true,
  },
];

export function Features({ of }: { of: Exchange }) {
  return (
    <>
      {!of.durable && <Tag tone="warn">{TEXTS.transient}</Tag>}
      {of.auto_delete && <Tag>{TEXTS.autoDelete}</Tag>}
      {of.internal && <Tag>{TEXTS.internal}</Tag>}
    </>
  );
}

export function Exchanges() {
  return (
    <ListPage
      title={words.pages.exchanges}
      of={useQuery<Exchange[]>(listPath("exchanges"), 3_000)}
      texts={(it) => [it.name || TEXTS.byDefault, it.vhost, it.type, it.policy]}
      columns={COLUMNS}
      keyOf={(it) => `${it.vhost}\u0000${it.name}`}
      order="vhost,name"
      isOfVhosts
      actions={
        role.value.changes && (
          <Opener verb={TEXTS.make} class="primary">
            {(close) => <Declare onClose={close} />}
          </Opener>
        )
      }
      empty={<p>{words.noneMatch}</p>}
    />
  );
}

const TYPES = [
  "direct",
  "fanout",
  "topic",
  "headers",
  "x-consistent-hash",
  "x-modulus-hash",
  "x-random",
  "x-local-random",
  "x-delayed-message",
  "x-recent-history",
];

function Declare({ onClose }: { onClose: () => void }) {
  const first = useFirstVhost();
  const [draft, put, bind] = useDraft({
    vhost: first,
    name: "",
    type: "topic",
    internal: false,
    more: "",
  });
  const { vhost, name, type, internal } = draft;
  const table = jsonObject(draft.more);
  const body = { type, durable: true, internal, arguments: table };
  return (
    <FormDialog
      title={TEXTS.make}
      verb={words.queues.declare.verb}
      isReady={table !== undefined}
      act={() => change("PUT", path("exchanges", vhost, name), body)}
      done={TEXTS.made(name)}
      onClose={onClose}
    >
      <VhostField {...bind.choice("vhost")} />
      <TextField label={words.name} required {...bind.text("name")} />
      <SelectField label={heads.type} {...bind.choice("type")} options={same(TYPES)} />
      <CheckField
        label={TEXTS.internalLabel}
        checked={internal}
        onCheck={(it) => put({ internal: it })}
      />
      <JsonField label={words.arguments} hint={TEXTS.argumentsHint} {...bind.text("more")} />
    </FormDialog>
  );
}
