import { change, path } from "../core/api";
import { go, href } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { User } from "../types";
import { TextField } from "../ui/fields";
import { FormDialog, Opener, useDraft } from "../ui/form";
import { ListPage } from "../ui/list";
import { Tag } from "../ui/parts";
import type { Column } from "../ui/table";
import { words } from "../words";
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

function Make({ onClose }: { onClose: () => void }) {
  const [draft, put] = useDraft({ name: "", password: "", tags: ["management"] });
  const { name, password, tags } = draft;
  return (
    <FormDialog
      title={TEXTS.make}
      verb={words.save}
      act={() => change("PUT", path("users", name), { password, tags: tags.join(",") })}
      done={TEXTS.made(name)}
      onClose={onClose}
      onDone={() => go(userHref(name))}
    >
      <TextField label={words.name} required value={name} onText={(it) => put({ name: it })} />
      <TextField
        label={words.login.password}
        type="password"
        autocomplete="new-password"
        required
        value={password}
        onText={(it) => put({ password: it })}
      />
      <TagField tags={tags} onTags={(it) => put({ tags: it })} />
    </FormDialog>
  );
}
