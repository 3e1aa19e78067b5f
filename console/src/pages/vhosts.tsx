import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import * as format from "../core/format";
import { href } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { messagesOf, type QueueRow } from "../live/board";
import { queues } from "../live/stream";
import type { Vhost } from "../types";
import { useAct } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { Dialog } from "../ui/dialog";
import { CheckField, SelectField, TextField } from "../ui/fields";
import { Head, Loaded, Tag } from "../ui/parts";
import { Search, filterText, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.vhosts;
const { heads } = TEXTS;

function queuesOf(vhost: string): QueueRow[] {
  return [...queues().rows.values()].filter((row) => row.vhost === vhost);
}

const sum = (rows: readonly QueueRow[], of: (row: QueueRow) => number): number =>
  rows.reduce((total, row) => total + of(row), 0);

function columns(
  onEdit: (vhost: Vhost) => void,
  onDelete: (vhost: Vhost) => void,
): Column<Vhost>[] {
  const shown: Column<Vhost>[] = [
    {
      id: "name",
      head: words.name,
      by: (it) => it.name,
      cell: (it) => <a href={href("/queues", { vhost: it.name })}>{it.name}</a>,
    },
    {
      id: "description",
      head: heads.description,
      by: (it) => it.description,
      cell: (it) => it.description ?? "",
      isWide: true,
    },
    number("queues", (it) => queuesOf(it.name).length),
    number("messages", (it) => sum(queuesOf(it.name), messagesOf)),
    {
      ...number("in", (it) => sum(queuesOf(it.name), (row) => row.inRate)),
      cell: (it) => rateOf(it),
      isWide: true,
    },
    {
      id: "type",
      head: heads.type,
      by: (it) => it.default_queue_type,
      cell: (it) => it.default_queue_type ?? "",
      isWide: true,
    },
    {
      id: "tracing",
      head: heads.tracing,
      by: (it) => it.tracing,
      cell: (it) => (it.tracing ? <Tag tone="warn">{TEXTS.traced}</Tag> : words.no),
      isWide: true,
    },
  ];
  if (!role.value.administrates || !role.value.changes) return shown;
  const acts = (it: Vhost) => (
    <span class="actions">
      <button type="button" class="small" onClick={() => onEdit(it)}>
        {words.change}
      </button>
      <button type="button" class="small danger" onClick={() => onDelete(it)}>
        {words.remove}…
      </button>
    </span>
  );
  return [...shown, { id: "acts", head: "", cell: acts }];
}

const rateOf = (vhost: Vhost): string =>
  format.rate(sum(queuesOf(vhost.name), (row) => row.inRate));

function number(id: keyof typeof heads, of: (it: Vhost) => number): Column<Vhost> {
  return { id, head: heads[id], by: of, cell: (it) => format.count(of(it)), isNumber: true };
}

export function Vhosts() {
  const query = useQuery<Vhost[]>("/vhosts");
  const [edited, setEdited] = useState<Vhost | undefined>(undefined);
  const [deleted, setDeleted] = useState<Vhost | undefined>(undefined);
  const filter = filterText();
  const { administrates, changes } = role.value;
  return (
    <>
      <Head title={words.pages.vhosts}>
        <Search label={words.pages.vhosts} />
        {administrates && changes && (
          <button
            type="button"
            class="primary"
            onClick={() => setEdited({ name: "", tracing: false })}
          >
            {TEXTS.make}
          </button>
        )}
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.vhosts}
            columns={columns(setEdited, setDeleted)}
            rows={all.filter((it) => matches(filter, it.name, it.description))}
            keyOf={(it) => it.name}
            order="name"
            isMain
            empty={<p>{words.noneMatch}</p>}
          />
        )}
      </Loaded>
      {edited && <Edit vhost={edited} onClose={() => setEdited(undefined)} />}
      {deleted && <Delete vhost={deleted} onClose={() => setDeleted(undefined)} />}
    </>
  );
}

function Edit({ vhost, onClose }: { vhost: Vhost; onClose: () => void }) {
  const isNew = vhost.name === "";
  const [name, setName] = useState(vhost.name);
  const [description, setDescription] = useState(vhost.description ?? "");
  const [type, setType] = useState(vhost.default_queue_type ?? "classic");
  const [tracing, setTracing] = useState(vhost.tracing);
  const { isBusy, run } = useAct();
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = { description, default_queue_type: type, tracing };
    if (await run(() => change("PUT", path("vhosts", name), body), TEXTS.saved(name))) onClose();
  };
  return (
    <Dialog title={isNew ? TEXTS.make : TEXTS.change(vhost.name)} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {isNew && <TextField label={words.name} required value={name} onText={setName} />}
        <TextField label={heads.description} value={description} onText={setDescription} />
        <SelectField
          label={heads.type}
          hint={TEXTS.typeHint}
          value={type}
          options={["classic", "quorum", "stream"].map((it) => [it, it])}
          onChoose={setType}
        />
        <CheckField label={TEXTS.tracingLabel} checked={tracing} onCheck={setTracing} />
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy}>
            {words.save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

const SAMPLE = 6;

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
      <ul>
        {rows.slice(0, SAMPLE).map((row) => (
          <li key={row.id}>
            <code>{row.name}</code> {format.counted(messagesOf(row), words.message, words.messages)}
          </li>
        ))}
      </ul>
      {rows.length > SAMPLE && <p class="dim">{words.andMore(rows.length - SAMPLE)}</p>}
    </Confirm>
  );
}
