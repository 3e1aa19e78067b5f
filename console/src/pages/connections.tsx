import { path } from "../core/api";
import * as format from "../core/format";
import { said } from "../core/place";
import { useQuery } from "../core/query";
import type { BlockedBy, Connection } from "../types";
import { ListPage, Nothing } from "../ui/list";
import { Age, Tag, connectionHref } from "../ui/parts";
import { Snippets } from "../ui/snippets";
import type { Column } from "../ui/table";
import { words } from "../words";
import { CloseConnection } from "./held/holder";

const TEXTS = words.connections;
const { heads } = TEXTS;

type Details = "publish_details" | "deliver_get_details" | "ack_details";

function messageRate(id: "published" | "delivered" | "acked", of: Details): Column<Connection> {
  return {
    id,
    head: heads[id],
    by: (it) => it.message_stats?.[of].rate,
    cell: (it) => format.rate(it.message_stats?.[of].rate),
    isNumber: true,
    isWide: true,
    isExtra: true,
  };
}

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
  { id: "user", head: heads.user, by: (it) => it.user },
  { id: "vhost", head: words.vhost, by: (it) => it.vhost, isWide: true },
  { id: "state", head: heads.state, by: (it) => it.state, cell: (it) => <State of={it} /> },
  {
    id: "in",
    head: heads.in,
    title: TEXTS.titles.in,
    by: (it) => it.recv_oct_details?.rate,
    cell: (it) => format.bytes(it.recv_oct_details?.rate),
    isNumber: true,
    isWide: true,
  },
  {
    id: "out",
    head: heads.out,
    title: TEXTS.titles.out,
    by: (it) => it.send_oct_details?.rate,
    cell: (it) => format.bytes(it.send_oct_details?.rate),
    isNumber: true,
    isWide: true,
  },
  messageRate("published", "publish_details"),
  messageRate("delivered", "deliver_get_details"),
  messageRate("acked", "ack_details"),
  {
    id: "tls",
    head: heads.tls,
    by: (it) => it.ssl,
    cell: (it) => (it.ssl ? words.yes : words.no),
    isWide: true,
    isExtra: true,
  },
  {
    id: "channels",
    head: heads.channels,
    by: (it) => it.channels,
    isNumber: true,
    isWide: true,
    isExtra: true,
  },
  {
    id: "consumers",
    head: heads.consumers,
    by: (it) => it.millrace?.consumers,
    isNumber: true,
    isWide: true,
    isExtra: true,
  },
  {
    id: "age",
    head: heads.age,
    by: (it) => -it.connected_at,
    cell: (it) => <Age at={it.connected_at} />,
    isNumber: true,
    isWide: true,
  },
  { id: "node", head: heads.node, by: (it) => it.node, isWide: true, isExtra: true },
  {
    id: "close",
    head: "",
    cell: (it) => <CloseConnection name={it.name} user={it.user} />,
    isWide: true,
  },
];

/** A connection that waits says why publishers stand still. */
export function State({
  of: { state, blocked_by },
}: {
  of: { state: string; blocked_by?: BlockedBy | null };
}) {
  if (blocked_by)
    return (
      <Tag tone="warn" title={TEXTS.blockedByTitles[blocked_by]}>
        {TEXTS.blockedBy[blocked_by]}
      </Tag>
    );
  return <Tag tone={state === "running" ? "good" : "warn"}>{state}</Tag>;
}

export function Connections() {
  const vhost = said("vhost");
  const to = vhost === "" ? "/connections" : path("vhosts", vhost, "connections");
  return (
    <ListPage
      title={words.pages.connections}
      of={useQuery<Connection[]>(to, 3_000)}
      texts={(it) => [it.name, it.user_provided_name, it.user, it.vhost, it.state, it.node]}
      columns={COLUMNS}
      keyOf={(it) => it.name}
      order="name"
      isOfVhosts
      empty={
        <Nothing text={TEXTS.nobody}>
          <Snippets />
        </Nothing>
      }
    />
  );
}
