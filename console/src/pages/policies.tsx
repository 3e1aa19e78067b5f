// Policies of users and of operators, and which queues each would govern.

import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import { useVhosts } from "../core/broker";
import * as format from "../core/format";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { queues } from "../live/stream";
import type { Policy } from "../types";
import { useAct } from "../ui/act";
import { Dialog } from "../ui/dialog";
import { Confirm } from "../ui/confirm";
import { Field, SelectField, TextField } from "../ui/fields";
import { jsonObject } from "../ui/json";
import { Arguments, Card, Head, Loaded } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.policies;
const { heads } = TEXTS;

type Kind = "policies" | "operator-policies";

const NEW: Policy = {
  name: "",
  vhost: "",
  pattern: "^",
  "apply-to": "queues",
  priority: 0,
  definition: {},
};

export function Policies() {
  return (
    <>
      <Head title={words.pages.policies}>
        <Search label={words.pages.policies} />
        <VhostFilter vhosts={useVhosts()} />
      </Head>
      <List kind="policies" mayChange={role.value.changes} />
      <List kind="operator-policies" mayChange={role.value.changes && role.value.administrates} />
    </>
  );
}

/** Names of queues that a pattern matches. A pattern that is none matches nothing. */
export function matching(pattern: string, names: readonly string[]): string[] {
  try {
    const expression = new RegExp(pattern);
    return names.filter((name) => expression.test(name));
  } catch {
    return [];
  }
}

function queueNames(vhost: string): string[] {
  return [...queues().rows.values()].filter((row) => row.vhost === vhost).map((row) => row.name);
}

function List({ kind, mayChange }: { kind: Kind; mayChange: boolean }) {
  const query = useQuery<Policy[]>(`/${kind}`);
  const [edited, setEdited] = useState<Policy | undefined>(undefined);
  const [deleted, setDeleted] = useState<Policy | undefined>(undefined);
  const [filter, vhost] = [filterText(), said("vhost")];
  const acts: Column<Policy> = {
    id: "acts",
    head: "",
    cell: (it) => (
      <span class="actions">
        <button type="button" class="small" onClick={() => setEdited(it)}>
          {words.change}
        </button>
        <button type="button" class="small danger" onClick={() => setDeleted(it)}>
          {words.remove}…
        </button>
      </span>
    ),
  };
  return (
    <Card
      title={TEXTS.titles[kind]}
      aside={
        mayChange && (
          <button type="button" onClick={() => setEdited(NEW)}>
            {TEXTS.make}
          </button>
        )
      }
    >
      <p class="dim">{TEXTS.texts[kind]}</p>
      <Loaded of={query}>
        {(all) => (
          <Table
            id={kind === "policies" ? "" : "o"}
            label={TEXTS.titles[kind]}
            columns={mayChange ? [...COLUMNS, acts] : COLUMNS}
            rows={all.filter(
              (it) => (vhost === "" || it.vhost === vhost) && matches(filter, it.name, it.pattern),
            )}
            keyOf={(it) => `${it.vhost}\u0000${it.name}`}
            order="vhost,-priority"
            isMain={kind === "policies"}
            empty={<p>{all.length > 0 ? words.noneMatch : TEXTS.nothing}</p>}
          />
        )}
      </Loaded>
      {edited && <Edit kind={kind} policy={edited} onClose={() => setEdited(undefined)} />}
      {deleted && <Delete kind={kind} policy={deleted} onClose={() => setDeleted(undefined)} />}
    </Card>
  );
}

const COLUMNS: readonly Column<Policy>[] = [
  { id: "name", head: words.name, by: (it) => it.name, cell: (it) => it.name },
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, cell: (it) => it.vhost, isWide: true },
  {
    id: "pattern",
    head: heads.pattern,
    by: (it) => it.pattern,
    cell: (it) => <code>{it.pattern}</code>,
  },
  {
    id: "to",
    head: heads.to,
    by: (it) => it["apply-to"],
    cell: (it) => it["apply-to"],
    isWide: true,
  },
  {
    id: "priority",
    head: heads.priority,
    by: (it) => it.priority,
    cell: (it) => it.priority,
    isNumber: true,
    isWide: true,
  },
  {
    id: "definition",
    head: heads.definition,
    cell: (it) => <Arguments of={it.definition} />,
    isWide: true,
  },
  {
    id: "queues",
    head: heads.queues,
    cell: (it) => format.count(matching(it.pattern, queueNames(it.vhost)).length),
    isNumber: true,
  },
];

function Matched({ pattern, vhost }: { pattern: string; vhost: string }) {
  const names = matching(pattern, queueNames(vhost));
  return (
    <p class="dim" role="status">
      {TEXTS.matched(names.length, names.slice(0, 5))}
    </p>
  );
}

function Edit({ kind, policy, onClose }: { kind: Kind; policy: Policy; onClose: () => void }) {
  const vhosts = useVhosts();
  const isNew = policy.name === "";
  const [name, setName] = useState(policy.name);
  const [chosen, setVhost] = useState(policy.vhost || said("vhost"));
  const [pattern, setPattern] = useState(policy.pattern);
  const [to, setTo] = useState(policy["apply-to"]);
  const [priority, setPriority] = useState(String(policy.priority));
  const [definition, setDefinition] = useState(JSON.stringify(policy.definition, null, 2));
  const { isBusy, run } = useAct();
  const vhost = chosen || (vhosts[0] ?? "/");
  const table = jsonObject(definition);
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = { pattern, "apply-to": to, priority: Number(priority), definition: table };
    if (table && (await run(() => change("PUT", path(kind, vhost, name), body), TEXTS.saved(name))))
      onClose();
  };
  return (
    <Dialog title={isNew ? TEXTS.make : TEXTS.change(policy.name)} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {isNew && (
          <>
            <SelectField
              label={words.vhost}
              value={vhost}
              options={vhosts.map((it) => [it, it])}
              onChoose={setVhost}
            />
            <TextField label={words.name} required value={name} onText={setName} />
          </>
        )}
        <TextField
          label={heads.pattern}
          hint={TEXTS.patternHint}
          required
          value={pattern}
          onText={setPattern}
        />
        <Matched pattern={pattern} vhost={vhost} />
        <SelectField
          label={heads.to}
          value={to}
          options={["queues", "exchanges", "all"].map((it) => [it, it])}
          onChoose={setTo}
        />
        <TextField label={heads.priority} type="number" value={priority} onText={setPriority} />
        <Field label={heads.definition} hint={table ? TEXTS.definitionHint : words.errors.json}>
          <textarea
            rows={5}
            spellcheck={false}
            value={definition}
            onInput={(it) => setDefinition(it.currentTarget.value)}
          />
        </Field>
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy || !table}>
            {words.save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function Delete({ kind, policy, onClose }: { kind: Kind; policy: Policy; onClose: () => void }) {
  const { vhost, name, pattern } = policy;
  return (
    <Confirm
      title={TEXTS.deleteTitle(name)}
      name={name}
      verb={words.remove}
      done={TEXTS.deleted(name)}
      act={() => change("DELETE", path(kind, vhost, name))}
      onClose={onClose}
    >
      <Matched pattern={pattern} vhost={vhost} />
    </Confirm>
  );
}
