// One user: password and tags, what it may do in which vhost, its limits.

import { change, path } from "../core/api";
import { go, said } from "../core/place";
import { useQuery } from "../core/query";
import { role, session } from "../core/session";
import type { Permission, User } from "../types";
import { Confirm } from "../ui/confirm";
import { TextField, VhostField, useFirstVhost } from "../ui/fields";
import { ActButton, Opener, PageForm, RowForm, useDraft } from "../ui/form";
import { ListCard } from "../ui/list";
import { Card, Head, Loaded } from "../ui/parts";
import type { Column } from "../ui/table";
import { words } from "../words";
import { LimitsOf } from "./users/limits";
import { EVERYTHING, READ_ONLY } from "./users/rights";
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
      <Loaded of={query} what={name}>
        {(user) => (
          <div class="columns">
            {mayChange && <Account key={user.tags.join()} user={user} />}
            <LimitsOf
              at={["user-limits", name]}
              limits={user.limits}
              names={["max-connections", "max-channels"]}
              mayChange={mayChange}
            />
          </div>
        )}
      </Loaded>
      <ListCard
        title={TEXTS.permissions}
        of={permissions}
        rows={(all) => all}
        columns={mayChange ? [...COLUMNS, TAKE] : COLUMNS}
        keyOf={(it) => it.vhost}
        order="vhost"
        empty={<p>{TEXTS.noPermission}</p>}
      >
        {mayChange && <Give name={name} />}
      </ListCard>
      <TopicPermissions name={name} mayChange={mayChange} />
    </>
  );
}

const COLUMNS: readonly Column<Permission>[] = [
  { id: "vhost", head: words.vhost, by: (it) => it.vhost },
  ...(["configure", "write", "read"] as const).map((right) => ({
    id: right,
    head: TEXTS.rights[right],
    cell: (it: Permission) => <code>{it[right] || TEXTS.noRight}</code>,
  })),
];

const TAKE: Column<Permission> = {
  id: "take",
  head: "",
  cell: ({ vhost, user }) => (
    <ActButton
      verb={TEXTS.take}
      act={() => change("DELETE", path("permissions", vhost, user))}
      done={TEXTS.taken(user, vhost)}
      isDanger
    />
  ),
};

function Give({ name }: { name: string }) {
  const first = useFirstVhost();
  const [draft, put] = useDraft({ vhost: "", ...EVERYTHING });
  const { vhost, ...rights } = { ...draft, vhost: draft.vhost || first };
  return (
    <RowForm
      verb={TEXTS.give}
      act={() => change("PUT", path("permissions", vhost, name), rights)}
      done={TEXTS.given(name, vhost)}
      more={
        <button type="button" onClick={() => put(READ_ONLY)}>
          {TEXTS.readOnly}
        </button>
      }
    >
      <VhostField value={vhost} onChoose={(it) => put({ vhost: it })} />
      {(["configure", "write", "read"] as const).map((right) => (
        <TextField
          key={right}
          label={TEXTS.rights[right]}
          value={rights[right]}
          onText={(text) => put({ [right]: text })}
        />
      ))}
    </RowForm>
  );
}

function Account({ user }: { user: User }) {
  const [{ password, tags }, put, bind] = useDraft({ password: "", tags: user.tags });
  const body = { ...secretOf(user, password), tags: tags.join(",") };
  return (
    <Card title={TEXTS.account}>
      <PageForm
        verb={words.save}
        act={() => change("PUT", path("users", user.name), body)}
        done={TEXTS.changed(user.name)}
      >
        <TextField
          label={TEXTS.newPassword}
          hint={TEXTS.newPasswordHint}
          type="password"
          autocomplete="new-password"
          {...bind.text("password")}
        />
        <TagField tags={tags} onTags={(it) => put({ tags: it })} />
      </PageForm>
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
  return (
    <Opener verb={`${words.remove}…`} class="danger">
      {(close) => (
        <Confirm
          title={TEXTS.deleteTitle(name)}
          name={name}
          verb={words.remove}
          done={TEXTS.deleted(name)}
          act={() => change("DELETE", path("users", name))}
          onClose={close}
          onDone={() => go("/users")}
        >
          <p>{TEXTS.deleteText(permissions.map((it) => it.vhost))}</p>
        </Confirm>
      )}
    </Opener>
  );
}
