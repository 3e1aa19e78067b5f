import { useQuery } from "../core/query";
import { useVhosts } from "../core/broker";
import { role } from "../core/session";
import type { Limits, User } from "../types";
import { ListCard } from "../ui/list";
import { Head, Loaded } from "../ui/parts";
import type { Column } from "../ui/table";
import { words } from "../words";
import { userHref } from "./users";
import { LimitsOf } from "./users/limits";

const TEXTS = words.limits;

const COLUMNS: readonly Column<User>[] = [
  {
    id: "name",
    head: words.users.user,
    by: (it) => it.name,
    cell: (it) => <a href={userHref(it.name)}>{it.name}</a>,
  },
  ...["max-connections", "max-channels"].map((name) => ({
    id: name,
    head: name,
    by: (it: User) => it.limits[name],
    cell: (it: User) => it.limits[name] ?? TEXTS.none,
    isNumber: true,
  })),
];

export function LimitsPage() {
  const vhosts = useVhosts();
  const limits = useQuery<Limits[]>("/vhost-limits");
  const users = useQuery<User[]>("/users?columns=name,tags,limits");
  return (
    <>
      <Head title={words.pages.limits} />
      <Loaded of={limits} what={words.pages.limits}>
        {(all) => (
          <div class="columns">
            {vhosts.map((vhost) => (
              <LimitsOf
                key={vhost}
                title={TEXTS.ofVhost(vhost)}
                at={["vhost-limits", vhost]}
                limits={all.find((it) => it.vhost === vhost)?.value ?? {}}
                names={["max-connections", "max-queues"]}
                mayChange={role.value.changes}
              />
            ))}
          </div>
        )}
      </Loaded>
      <ListCard
        title={TEXTS.ofUsers}
        of={users}
        rows={(all) => all}
        columns={COLUMNS}
        keyOf={(it) => it.name}
        order="name"
        isMain
        empty={null}
      />
    </>
  );
}
