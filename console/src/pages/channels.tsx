import { path } from "../core/api";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import type { Channel } from "../types";
import { ListPage } from "../ui/list";
import { Tag, connectionHref } from "../ui/parts";
import type { Column } from "../ui/table";
import { words } from "../words";
import { State } from "./connections";

const TEXTS = words.channels;
const { heads } = TEXTS;

function number(id: keyof typeof heads, by: (it: Channel) => number): Column<Channel> {
  return { id, head: heads[id], by, isNumber: true, isWide: true };
}

export const CHANNEL_COLUMNS: readonly Column<Channel>[] = [
  {
    id: "number",
    head: heads.number,
    by: (it) => it.number,
    cell: (it) => <a href={connectionHref(it.connection_details.name)}>{it.name}</a>,
  },
  { id: "user", head: heads.user, by: (it) => it.user, isWide: true },
  { id: "state", head: heads.state, by: (it) => it.state, cell: (it) => <State of={it} /> },
  {
    id: "mode",
    head: heads.mode,
    cell: (it) => (
      <>
        {it.confirm && <Tag>{TEXTS.confirms}</Tag>}
        {it.transactional && <Tag>{TEXTS.transactional}</Tag>}
      </>
    ),
    isWide: true,
  },
  number("consumers", (it) => it.consumer_count),
  { ...number("unacked", (it) => it.messages_unacknowledged), isWide: false },
  number("unconfirmed", (it) => it.messages_unconfirmed),
  number("prefetch", (it) => it.prefetch_count),
];

export function Channels() {
  const vhost = said("vhost");
  const to = vhost === "" ? "/channels" : path("vhosts", vhost, "channels");
  return (
    <ListPage
      title={words.pages.channels}
      of={useQuery<Channel[]>(to, 3_000)}
      texts={(it) => [it.name, it.user, it.vhost, it.state]}
      columns={CHANNEL_COLUMNS}
      keyOf={(it) => it.name}
      order="-unacked"
      isOfVhosts
      empty={<p>{TEXTS.nobody}</p>}
    />
  );
}
