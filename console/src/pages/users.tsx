import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import { go, href } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { User } from "../types";
import { useAct } from "../ui/act";
import { Dialog } from "../ui/dialog";
import { TextField } from "../ui/fields";
import { Head, Loaded, Tag } from "../ui/parts";
import { Search, filterText, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
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
  const query = useQuery<User[]>("/users?columns=name,tags,limits");
  const [isMaking, setMaking] = useState(false);
  const filter = filterText();
  return (
    <>
      <Head title={words.pages.users}>
        <Search label={words.pages.users} />
        {role.value.changes && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {TEXTS.make}
          </button>
        )}
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.users}
            columns={COLUMNS}
            rows={all.filter((it) => matches(filter, it.name, ...it.tags))}
            keyOf={(it) => it.name}
            order="name"
            isMain
            empty={<p>{words.noneMatch}</p>}
          />
        )}
      </Loaded>
      {isMaking && <Make onClose={() => setMaking(false)} />}
    </>
  );
}

function Make({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [tags, setTags] = useState<string[]>(["management"]);
  const { isBusy, run } = useAct();
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = { password, tags: tags.join(",") };
    if (!(await run(() => change("PUT", path("users", name), body), TEXTS.made(name)))) return;
    onClose();
    go(userHref(name));
  };
  return (
    <Dialog title={TEXTS.make} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <TextField label={words.name} required value={name} onText={setName} />
        <TextField
          label={words.login.password}
          type="password"
          autocomplete="new-password"
          required
          value={password}
          onText={setPassword}
        />
        <TagField tags={tags} onTags={setTags} />
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
