import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import * as format from "../core/format";
import { href } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { messagesOf, type QueueRow } from "../live/board";
import { queues } from "../live/stream";
import type { Vhost } from "../types";
import { Confirm } from "../ui/confirm";
import { CheckField, SelectField, TextField, same } from "../ui/fields";
import { FormDialog, useDraft } from "../ui/form";
import { ListPage } from "../ui/list";
import { Tag } from "../ui/parts";
import { EditButtons, type Column } from "../ui/table";
import { words } from "../words";
import { QueueSample } from "./queues/bulk";
import { Traces } from "./vhosts/traces";

const TEXTS = words.vhosts;
const { heads } = TEXTS;

function queuesOf(vhost: string): QueueRow[] {
  return [...queues().rows.values()].filter((row) => row.vhost === vhost);
}

const sum = (rows: readonly QueueRow[], of: (row: QueueRow) => number): number =>
  rows.reduce((total, row) => total + of(row), 0);

function number(id: keyof typeof heads, by: (it: Vhost) => number): Column<Vhost> {
  return { id, head: heads[id], by, isNumber: true };
}

const inRateOf = ({ name }: Vhost): number => sum(queuesOf(name), (row) => row.inRate);

const COLUMNS: readonly Column<Vhost>[] = [
  {
    id: "name",
    head: words.name,
    by: (it) => it.name,
    cell: (it) => <a href={href("/queues", { vhost: it.name })}>{it.name}</a>,
  },
  { id: "description", head: heads.description, by: (it) => it.description, isWide: true },
  number("queues", (it) => queuesOf(it.name).length),
  number("messages", (it) => sum(queuesOf(it.name), messagesOf)),
  { ...number("in", inRateOf), cell: (it) => format.rate(inRateOf(it)), isWide: true },
  { id: "type", head: heads.type, by: (it) => it.default_queue_type, isWide: true },
  {
    id: "tracing",
    head: heads.tracing,
    by: (it) => it.tracing,
    cell: (it) => (it.tracing ? <Traced vhost={it.name} /> : words.no),
    isWide: true,
  },
];

function Traced({ vhost }: { vhost: string }) {
  return (
    <span class="actions">
      <Tag tone="warn" title={TEXTS.traced}>
        {words.yes}
      </Tag>
      {role.value.administrates && role.value.changes && <Traces vhost={vhost} />}
    </span>
  );
}

const NEW: Vhost = { name: "", tracing: false };

export function Vhosts() {
  const [edited, setEdited] = useState<Vhost | undefined>(undefined);
  const [deleted, setDeleted] = useState<Vhost | undefined>(undefined);
  const mayChange = role.value.administrates && role.value.changes;
  const acts: Column<Vhost> = {
    id: "acts",
    head: "",
    cell: (it) => <EditButtons onEdit={() => setEdited(it)} onDelete={() => setDeleted(it)} />,
  };
  return (
    <>
      <ListPage
        title={words.pages.vhosts}
        of={useQuery<Vhost[]>("/vhosts")}
        texts={(it) => [it.name, it.description]}
        columns={mayChange ? [...COLUMNS, acts] : COLUMNS}
        keyOf={(it) => it.name}
        order="name"
        actions={
          mayChange && (
            <button type="button" class="primary" onClick={() => setEdited(NEW)}>
              {TEXTS.make}
            </button>
          )
        }
        empty={<p>{words.noneMatch}</p>}
      />
      {edited && <Edit vhost={edited} onClose={() => setEdited(undefined)} />}
      {deleted && <Delete vhost={deleted} onClose={() => setDeleted(undefined)} />}
    </>
  );
}

function Edit({ vhost, onClose }: { vhost: Vhost; onClose: () => void }) {
  const isNew = vhost.name === "";
  const [draft, put, bind] = useDraft({
    name: vhost.name,
    description: vhost.description ?? "",
    default_queue_type: vhost.default_queue_type ?? "classic",
    tracing: vhost.tracing,
  });
  const { name, ...body } = draft;
  return (
    <FormDialog
      title={isNew ? TEXTS.make : TEXTS.change(vhost.name)}
      verb={words.save}
      act={() => change("PUT", path("vhosts", name), body)}
      done={TEXTS.saved(name)}
      onClose={onClose}
    >
      {isNew && <TextField label={words.name} required {...bind.text("name")} />}
      <TextField label={heads.description} {...bind.text("description")} />
      <SelectField
        label={heads.type}
        hint={TEXTS.typeHint}
        {...bind.choice("default_queue_type")}
        options={same(["classic", "quorum", "stream"])}
      />
      <CheckField
        label={TEXTS.tracingLabel}
        checked={body.tracing}
        onCheck={(tracing) => put({ tracing })}
      />
    </FormDialog>
  );
}

function Delete({ vhost: { name }, onClose }: { vhost: Vhost; onClose: () => void }) {
  const rows = queuesOf(name);
  return (
    <Confirm
      title={TEXTS.deleteTitle(name)}
      name={name}
      verb={words.remove}
      done={TEXTS.deleted(name)}
      act={() => change("DELETE", path("vhosts", name))}
      onClose={onClose}
    >
      <p>{TEXTS.deleteText(rows.length, sum(rows, messagesOf))}</p>
      <QueueSample queues={rows} />
    </Confirm>
  );
}
