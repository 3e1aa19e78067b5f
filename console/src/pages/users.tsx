import { change, path } from "../core/api";
import { go, href } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { User } from "../types";
import { SelectField, TextField, VhostField, useFirstVhost } from "../ui/fields";
import { FormDialog, Opener, useDraft } from "../ui/form";
import { ListPage } from "../ui/list";
import { Tag } from "../ui/parts";
import type { Column } from "../ui/table";
import { words } from "../words";
import { EVERYTHING, READ_ONLY } from "./users/rights";
import { TagField } from "./users/tags";

const TEXTS = words.users;

export const userHref = (name: string): string => href("/user", { name });

const COLUMNS: readonly Column<User>[] = [
  {
    id: "name",
    head: words.name,
    by: (it) => it.name,
    cell: (it) => <a href={userHref(it.name)}>{it.name}</a>,
  },
  {
    id: "tags",
    head: TEXTS.tags,
    by: (it) => it.tags.join(),
    cell: (it) =>
      it.tags.length === 0 ? (
        <span class="dim">{TEXTS.noTag}</span>
      ) : (
        it.tags.map((tag) => <Tag key={tag}>{tag}</Tag>)
      ),
  },
  {
    id: "limits",
    head: words.pages.limits,
    cell: (it) =>
      Object.entries(it.limits).map(([name, value]) => <Tag key={name}>{`${name}: ${value}`}</Tag>),
    isWide: true,
  },
];

export function Users() {
  return (
    <ListPage
      title={words.pages.users}
      of={useQuery<User[]>("/users?columns=name,tags,limits")}
      texts={(it) => [it.name, ...it.tags]}
      columns={COLUMNS}
      keyOf={(it) => it.name}
      order="name"
      actions={
        role.value.changes && (
          <Opener verb={TEXTS.make} class="primary">
            {(close) => <Make onClose={close} />}
          </Opener>
        )
      }
      empty={<p>{words.noneMatch}</p>}
    />
  );
}

/** What a new user may do in a vhost. */
const ACCESS = { none: undefined, read: READ_ONLY, all: EVERYTHING };

function Make({ onClose }: { onClose: () => void }) {
  const first = useFirstVhost();
  const [draft, put, bind] = useDraft({
    name: "",
    password: "",
    tags: ["management"],
    access: "none" as keyof typeof ACCESS,
    vhost: first,
  });
  const { name, password, tags, access, vhost } = draft;
  const make = async () => {
    await change("PUT", path("users", name), { password, tags: tags.join(",") });
    const rights = ACCESS[access];
    if (rights) await change("PUT", path("permissions", vhost, name), rights);
  };
  return (
    <FormDialog
      title={TEXTS.make}
      verb={words.save}
      act={make}
      done={TEXTS.made(name)}
      onClose={onClose}
      onDone={() => go(userHref(name))}
    >
      <TextField label={words.name} required {...bind.text("name")} />
      <TextField
        label={words.login.password}
        type="password"
        autocomplete="new-password"
        required
        {...bind.text("password")}
      />
      <SelectField label={TEXTS.access} {...bind.choice("access")} options={TEXTS.accesses} />
      {access !== "none" && <VhostField {...bind.choice("vhost")} />}
      <TagField tags={tags} onTags={(it) => put({ tags: it })} />
    </FormDialog>
  );
}
