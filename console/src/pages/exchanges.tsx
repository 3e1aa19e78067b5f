import { useState } from "preact/hooks";
import { listPath, useVhosts } from "../core/broker";
import { change, path } from "../core/api";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { Exchange } from "../types";
import { useAct } from "../ui/act";
import { Dialog } from "../ui/dialog";
import { CheckField, SelectField, TextField } from "../ui/fields";
import { jsonObject } from "../ui/json";
import { Arguments, ExchangeLink, Head, Loaded, Tag } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
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
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, cell: (it) => it.vhost, isWide: true },
  { id: "type", head: heads.type, by: (it) => it.type, cell: (it) => it.type },
  { id: "features", head: heads.features, cell: (it) => <Features of={it} />, isWide: true },
  {
    id: "policy",
    head: heads.policy,
    by: (it) => it.policy,
    cell: (it) => it.policy ?? "",
    isWide: true,
  },
  {
    id: "arguments",
    head: words.arguments,
    cell: (it) => <Arguments of={it.arguments} />,
    isWide: true,
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
  const vhosts = useVhosts();
  const query = useQuery<Exchange[]>(listPath("exchanges"), 15_000);
  const [isMaking, setMaking] = useState(false);
  const filter = filterText();
  return (
    <>
      <Head title={words.pages.exchanges}>
        <Search label={words.pages.exchanges} />
        <VhostFilter vhosts={vhosts} />
        {role.value.changes && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {TEXTS.make}
          </button>
        )}
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.exchanges}
            columns={COLUMNS}
            rows={all.filter((it) =>
              matches(filter, it.name || TEXTS.byDefault, it.vhost, it.type, it.policy),
            )}
            keyOf={(it) => `${it.vhost}\u0000${it.name}`}
            order="vhost,name"
            isMain
            empty={<p>{words.noneMatch}</p>}
          />
        )}
      </Loaded>
      {isMaking && <Declare vhosts={vhosts} onClose={() => setMaking(false)} />}
    </>
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

function Declare({ vhosts, onClose }: { vhosts: readonly string[]; onClose: () => void }) {
  const [vhost, setVhost] = useState(said("vhost") || (vhosts[0] ?? "/"));
  const [name, setName] = useState("");
  const [type, setType] = useState("topic");
  const [internal, setInternal] = useState(false);
  const [more, setMore] = useState("");
  const { isBusy, run } = useAct();
  const table = jsonObject(more);
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = { type, durable: true, internal, arguments: table };
    if (
      table &&
      (await run(() => change("PUT", path("exchanges", vhost, name), body), TEXTS.made(name)))
    )
      onClose();
  };
  return (
    <Dialog title={TEXTS.make} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <SelectField
          label={words.vhost}
          value={vhost}
          options={vhosts.map((it) => [it, it])}
          onChoose={setVhost}
        />
        <TextField label={words.name} required value={name} onText={setName} />
        <SelectField
          label={heads.type}
          value={type}
          options={TYPES.map((it) => [it, it])}
          onChoose={setType}
        />
        <CheckField label={TEXTS.internalLabel} checked={internal} onCheck={setInternal} />
        <TextField
          label={words.arguments}
          hint={table ? TEXTS.argumentsHint : words.errors.json}
          value={more}
          onText={setMore}
        />
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy || !table}>
            {words.queues.declare.verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
