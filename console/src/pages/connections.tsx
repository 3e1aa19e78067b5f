import * as format from "../core/format";
import { listPath, useVhosts } from "../core/broker";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import { now } from "../core/visible";
import type { Connection } from "../types";
import { Head, Loaded, Tag, connectionHref } from "../ui/parts";
import { Search, VhostFilter, filterText, matches } from "../ui/search";
import { Snippets } from "../ui/snippets";
import { ColumnMenu, Table, type Column } from "../ui/table";
import { words } from "../words";
import { CloseConnection } from "./held/holder";

const TEXTS = words.connections;
const { heads } = TEXTS;

const COLUMNS: readonly Column<Connection>[] = [
  {
    id: "name",
    head: heads.name,
    by: (it) => it.user_provided_name ?? it.name,
    cell: (it) => (
      <a href={connectionHref(it.name)} title={it.name}>
        {it.user_provided_name ?? it.name}
      </a>
    ),
  },
  {
    id: "host",
    head: heads.host,
    by: (it) => it.peer_host,
    cell: (it) => `${it.peer_host}:${it.peer_port}`,
    isWide: true,
  },
  { id: "user", head: heads.user, by: (it) => it.user, cell: (it) => it.user },
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, cell: (it) => it.vhost, isWide: true },
  { id: "state", head: heads.state, by: (it) => it.state, cell: (it) => <State of={it.state} /> },
  {
    id: "tls",
    head: heads.tls,
    by: (it) => it.ssl,
    cell: (it) => (it.ssl ? words.yes : words.no),
    isWide: true,
  },
  {
    id: "channels",
    head: heads.channels,
    by: (it) => it.channels,
    cell: (it) => format.count(it.channels),
    isNumber: true,
    isWide: true,
  },
  {
    id: "consumers",
    head: heads.consumers,
    by: (it) => it.millrace?.consumers,
    cell: (it) => format.count(it.millrace?.consumers),
    isNumber: true,
    isWide: true,
  },
  {
    id: "age",
    head: heads.age,
    by: (it) => -it.connected_at,
    cell: (it) => (
      <span title={format.time(it.connected_at)}>{format.ago(it.connected_at, now.value)}</span>
    ),
    isNumber: true,
    isWide: true,
  },
  {
    id: "node",
    head: heads.node,
    by: (it) => it.node,
    cell: (it) => it.node,
    isWide: true,
    isExtra: true,
  },
  {
    id: "close",
    head: "",
    cell: (it) => <CloseConnection name={it.name} user={it.user} />,
    isWide: true,
  },
];

/** A connection that waits says why publishers stand still. */
export function State({ of }: { of: string }) {
  return <Tag tone={of === "running" ? "good" : "warn"}>{of}</Tag>;
}

export function Connections() {
  const query = useQuery<Connection[]>(
    said("vhost") === "" ? "/connections" : `${listPath("vhosts")}/connections`,
    3_000,
  );
  const filter = filterText();
  return (
    <>
      <Head title={words.pages.connections}>
        <Search label={words.pages.connections} />
        <VhostFilter vhosts={useVhosts()} />
        <ColumnMenu columns={COLUMNS} />
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.connections}
            columns={COLUMNS}
            rows={all.filter((it) =>
              matches(filter, it.name, it.user_provided_name, it.user, it.vhost, it.state, it.node),
            )}
            keyOf={(it) => it.name}
            order="name"
            isMain
            empty={all.length > 0 ? <p>{words.noneMatch}</p> : <Nobody />}
          />
        )}
      </Loaded>
    </>
  );
}

function Nobody() {
  return (
    <>
      <h2>{TEXTS.nobody}</h2>
      <Snippets />
    </>
  );
}
