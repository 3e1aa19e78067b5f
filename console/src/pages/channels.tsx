import * as format from "../core/format";
import { useVhosts } from "../core/broker";
import { path } from "../core/api";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import type { Channel } from "../types";
import { Head, Loaded, Tag, connectionHref } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { State } from "./connections";

const TEXTS = words.channels;
const { heads } = TEXTS;

function number(id: keyof typeof heads, of: (it: Channel) => number): Column<Channel> {
  return {
    id,
    head: heads[id],
    by: of,
    cell: (it) => format.count(of(it)),
    isNumber: true,
    isWide: true,
  };
}

export const CHANNEL_COLUMNS: readonly Column<Channel>[] = [
  {
    id: "number",
    head: heads.number,
    by: (it) => it.number,
    cell: (it) => <a href={connectionHref(it.connection_details.name)}>{it.name}</a>,
  },
  { id: "user", head: heads.user, by: (it) => it.user, cell: (it) => it.user, isWide: true },
  { id: "state", head: heads.state, by: (it) => it.state, cell: (it) => <State of={it.state} /> },
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
  const query = useQuery<Channel[]>(
    vhost === "" ? "/channels" : path("vhosts", vhost, "channels"),
    3_000,
  );
  const filter = filterText();
  return (
    <>
      <Head title={words.pages.channels}>
        <Search label={words.pages.channels} />
        <VhostFilter vhosts={useVhosts()} />
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.channels}
            columns={CHANNEL_COLUMNS}
            rows={all.filter((it) => matches(filter, it.name, it.user, it.vhost, it.state))}
            keyOf={(it) => it.name}
            order="-unacked"
            isMain
            empty={<p>{all.length > 0 ? words.noneMatch : TEXTS.nobody}</p>}
          />
        )}
      </Loaded>
    </>
  );
}
