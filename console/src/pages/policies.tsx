// Policies of users and of operators, and which queues each would govern.

import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { queues } from "../live/stream";
import type { Foreseen, Policy } from "../types";
import { useAct } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { JsonField, SelectField, TextField, VhostField, same, useFirstVhost } from "../ui/fields";
import { FormDialog, useDraft } from "../ui/form";
import { jsonObject } from "../ui/json";
import { ListCard } from "../ui/list";
import { Arguments, Head } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { EditButtons, type Column } from "../ui/table";
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
        <VhostFilter />
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

const COLUMNS: readonly Column<Policy>[] = [
  { id: "name", head: words.name, by: (it) => it.name },
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, isWide: true },
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
    isWide: true,
  },
  {
    id: "priority",
    head: heads.priority,
    by: (it) => it.priority,
    isNumber: true,
    isWide: true,
  },
  {
    id: "definition",
    head: heads.definition,
    cell: (it) => <Arguments of={it.definition} />,
    wraps: true,
    isWide: true,
  },
  {
    id: "queues",
    head: heads.queues,
    by: (it) => matching(it.pattern, queueNames(it.vhost)).length,
    isNumber: true,
  },
];

function List({ kind, mayChange }: { kind: Kind; mayChange: boolean }) {
  const [edited, setEdited] = useState<Policy | undefined>(undefined);
  const [deleted, setDeleted] = useState<Policy | undefined>(undefined);
  const [filter, vhost] = [filterText(), said("vhost")];
  const isShown = (it: Policy) =>
    (vhost === "" || it.vhost === vhost) && matches(filter, it.name, it.pattern);
  const acts: Column<Policy> = {
    id: "acts",
    head: "",
    cell: (it) => <EditButtons onEdit={() => setEdited(it)} onDelete={() => setDeleted(it)} />,
  };
  const make = (
    <button type="button" onClick={() => setEdited(NEW)}>
      {TEXTS.make}
    </button>
  );
  return (
    <>
      <ListCard
        id={kind === "policies" ? "" : "o"}
        title={TEXTS.titles[kind]}
        text={TEXTS.texts[kind]}
        aside={mayChange && make}
        of={useQuery<Policy[]>(`/${kind}`)}
        rows={(all) => all.filter(isShown)}
        columns={mayChange ? [...COLUMNS, acts] : COLUMNS}
        keyOf={(it) => `${it.vhost}\u0000${it.name}`}
        order="vhost,-priority"
        isMain={kind === "policies"}
        empty={<p>{filter + vhost === "" ? TEXTS.nothing : words.noneMatch}</p>}
      />
      {edited && <Edit kind={kind} policy={edited} onClose={() => setEdited(undefined)} />}
      {deleted && <Delete kind={kind} policy={deleted} onClose={() => setDeleted(undefined)} />}
    </>
  );
}

function Matched({ pattern, vhost }: { pattern: string; vhost: string }) {
  const names = matching(pattern, queueNames(vhost));
  return (
    <p class="dim" role="status">
      {TEXTS.matched(names.length, names.slice(0, 5))}
    </p>
  );
}

function Edit({ kind, policy, onClose }: { kind: Kind; policy: Policy; onClose: () => void }) {
  const isNew = policy.name === "";
  const first = useFirstVhost();
  const [draft, , bind] = useDraft({
    ...policy,
    vhost: policy.vhost || first,
    priority: String(policy.priority),
    definition: JSON.stringify(policy.definition, null, 2),
  });
  const { vhost, name, pattern, priority, definition } = draft;
  const table = jsonObject(definition);
  const body = {
    pattern,
    "apply-to": draft["apply-to"],
    priority: Number(priority),
    definition: table,
  };
  return (
    <FormDialog
      title={isNew ? TEXTS.make : TEXTS.change(policy.name)}
      verb={words.save}
      isReady={table !== undefined}
      act={() => change("PUT", path(kind, vhost, name), body)}
      done={TEXTS.saved(name)}
      onClose={onClose}
    >
      {isNew && (
        <>
          <VhostField {...bind.choice("vhost")} />
          <TextField label={words.name} required {...bind.text("name")} />
        </>
      )}
      <TextField
        label={heads.pattern}
        hint={TEXTS.patternHint}
        required
        {...bind.text("pattern")}
      />
      <Matched pattern={pattern} vhost={vhost} />
      <SelectField
        label={heads.to}
        {...bind.choice("apply-to")}
        options={same(["queues", "exchanges", "all"])}
      />
      <TextField label={heads.priority} type="number" {...bind.text("priority")} />
      <JsonField
        label={heads.definition}
        hint={TEXTS.definitionHint}
        rows={5}
        {...bind.text("definition")}
      />
      <WouldChange
        to={path("millrace", "explain", vhost, kind, name)}
        body={body}
        isReady={table !== undefined && name !== "" && pattern !== ""}
      />
    </FormDialog>
  );
}

interface WouldChangeProps {
  to: string;
  body: unknown;
  isReady: boolean;
}

/** Which queues the policy would change, asked for by a button: what was written since is not in the answer. */
function WouldChange({ to, body, isReady }: WouldChangeProps) {
  const [told, setTold] = useState<{ of: string; foreseen: Foreseen } | undefined>(undefined);
  const { isBusy, run } = useAct();
  const of = JSON.stringify([to, body]);
  const ask = () =>
    run(async () => setTold({ of, foreseen: await change<Foreseen>("POST", to, body) }));
  const foreseen = told?.of === of ? told.foreseen : undefined;
  return (
    <div role="status">
      <button type="button" class="small" disabled={isBusy || !isReady} onClick={() => void ask()}>
        {TEXTS.foresee}
      </button>
      {foreseen && (
        <>
          <p>{TEXTS.foreseen(foreseen.queue_count, foreseen.change_count)}</p>
          <ul>
            {foreseen.changes.slice(0, 5).map(({ queue, definition }) => (
              <li key={queue}>
                <strong>{queue}</strong>: <Arguments of={definition.before} /> {TEXTS.becomes}{" "}
                <Arguments of={definition.after} />
              </li>
            ))}
          </ul>
          {foreseen.change_count > 5 && <p>{words.andMore(foreseen.change_count - 5)}</p>}
        </>
      )}
    </div>
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
