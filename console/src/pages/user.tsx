// One user: password and tags, what it may do in which vhost, its limits.

import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import { useVhosts } from "../core/broker";
import { go, said } from "../core/place";
import { useQuery } from "../core/query";
import { role, session } from "../core/session";
import type { Permission, User } from "../types";
import { useAct } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { SelectField, TextField } from "../ui/fields";
import { Card, Head, Loaded } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { LimitsOf } from "./users/limits";
import { TagField } from "./users/tags";
import { TopicPermissions } from "./users/topics";

const TEXTS = words.users;

export function UserPage() {
  const name = said("name");
  const query = useQuery<User>(path("users", name));
  const permissions = useQuery<Permission[]>(path("users", name, "permissions"));
  const mayChange = role.value.changes;
  return (
    <>
      <Head title={name}>
        {mayChange && session.value?.user !== name && (
          <Delete name={name} permissions={permissions.data ?? []} />
        )}
      </Head>
      <Loaded of={query}>
        {(user) => (
          <div class="columns">
            {mayChange && <Account key={user.tags.join()} user={user} />}
            <LimitsOf
              path={path("user-limits", name)}
              limits={user.limits}
              names={["max-connections", "max-channels"]}
              mayChange={mayChange}
            />
          </div>
        )}
      </Loaded>
      <Card title={TEXTS.permissions}>
        <Loaded of={permissions}>
          {(all) => (
            <Table
              label={TEXTS.permissions}
              columns={mayChange ? [...COLUMNS, TAKE] : COLUMNS}
              rows={all}
              keyOf={(it) => it.vhost}
              order="vhost"
              empty={<p>{TEXTS.noPermission}</p>}
            />
          )}
        </Loaded>
        {mayChange && <Give name={name} />}
      </Card>
      <TopicPermissions name={name} mayChange={mayChange} />
    </>
  );
}

const COLUMNS: readonly Column<Permission>[] = [
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, cell: (it) => it.vhost },
  ...(["configure", "write", "read"] as const).map((right) => ({
    id: right,
    head: TEXTS.rights[right],
    cell: (it: Permission) => <code>{it[right] || TEXTS.noRight}</code>,
  })),
];

const TAKE: Column<Permission> = { id: "take", head: "", cell: (it) => <Take permission={it} /> };

function Take({ permission: { vhost, user } }: { permission: Permission }) {
  const { isBusy, run } = useAct();
  const take = () =>
    run(() => change("DELETE", path("permissions", vhost, user)), TEXTS.taken(user, vhost));
  return (
    <button type="button" class="small danger" disabled={isBusy} onClick={() => void take()}>
      {TEXTS.take}
    </button>
  );
}

function Give({ name }: { name: string }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState("");
  const [rights, setRights] = useState({ configure: ".*", write: ".*", read: ".*" });
  const { isBusy, run } = useAct();
  const chosen = vhost || (vhosts[0] ?? "/");
  const submit = async (event: Event) => {
    event.preventDefault();
    await run(
      () => change("PUT", path("permissions", chosen, name), rights),
      TEXTS.given(name, chosen),
    );
  };
  return (
    <form class="row" onSubmit={(event) => void submit(event)}>
      <SelectField
        label={words.vhost}
        value={chosen}
        options={vhosts.map((it) => [it, it])}
        onChoose={setVhost}
      />
      {(["configure", "write", "read"] as const).map((right) => (
        <TextField
          key={right}
          label={TEXTS.rights[right]}
          value={rights[right]}
          onText={(text) => setRights({ ...rights, [right]: text })}
        />
      ))}
      <button type="submit" disabled={isBusy}>
        {TEXTS.give}
      </button>
      <button type="button" onClick={() => setRights({ configure: "", write: "", read: ".*" })}>
        {TEXTS.readOnly}
      </button>
    </form>
  );
}

function Account({ user }: { user: User }) {
  const [password, setPassword] = useState("");
  const [tags, setTags] = useState<string[]>(user.tags);
  const { isBusy, run } = useAct();
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = { ...secretOf(user, password), tags: tags.join(",") };
    await run(() => change("PUT", path("users", user.name), body), TEXTS.changed(user.name));
  };
  return (
    <Card title={TEXTS.account}>
      <form onSubmit={(event) => void submit(event)}>
        <TextField
          label={TEXTS.newPassword}
          hint={TEXTS.newPasswordHint}
          type="password"
          autocomplete="new-password"
          value={password}
          onText={setPassword}
        />
        <TagField tags={tags} onTags={setTags} />
        <button type="submit" class="primary" disabled={isBusy}>
          {words.save}
        </button>
      </form>
    </Card>
  );
}

/** The API changes a user as a whole: who changes only tags sends the password's hash back. */
function secretOf(
  { password_hash, hashing_algorithm }: User,
  password: string,
): Record<string, string> {
  return password !== "" ? { password } : { password_hash, hashing_algorithm };
}

function Delete({ name, permissions }: { name: string; permissions: Permission[] }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="danger" onClick={() => setOpen(true)}>
        {words.remove}…
      </button>
      {isOpen && (
        <Confirm
          title={TEXTS.deleteTitle(name)}
          name={name}
          verb={words.remove}
          done={TEXTS.deleted(name)}
          act={() => change("DELETE", path("users", name))}
          onClose={() => setOpen(false)}
          onDone={() => go("/users")}
        >
          <p>{TEXTS.deleteText(permissions.map((it) => it.vhost))}</p>
        </Confirm>
      )}
    </>
  );
}
