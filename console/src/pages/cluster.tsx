// Nodes, and the groups that they keep.

import { useOverview } from "../core/broker";
import * as format from "../core/format";
import { path } from "../core/api";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { nodes as liveNodes } from "../live/stream";
import type { Node } from "../types";
import { History } from "../ui/history";
import { ListCard } from "../ui/list";
import { Card, Facts, Head, Loaded, Tag } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { words } from "../words";
import { Definitions } from "./cluster/definitions";
import { Orders } from "./cluster/orders";
import type { Disk, GroupLag, Reconciled } from "./cluster/told";

const TEXTS = words.cluster;
const { heads } = TEXTS;

const NODES: readonly Column<Node>[] = [
  {
    id: "name",
    head: heads.node,
    by: (it) => it.name,
    cell: (it) => (
      <button type="button" class="link" onClick={() => show({ node: it.name }, "push")}>
        {it.name}
      </button>
    ),
  },
  { id: "state", head: heads.state, cell: (it) => <State of={it} /> },
  {
    id: "uptime",
    head: heads.uptime,
    by: (it) => it.uptime,
    cell: (it) => format.duration(it.uptime),
    isWide: true,
  },
  {
    id: "memory",
    head: heads.memory,
    by: (it) => it.mem_used,
    cell: (it) => TEXTS.of(format.bytes(it.mem_used), format.bytes(it.mem_limit)),
    isNumber: true,
  },
  {
    id: "disk",
    head: heads.disk,
    by: (it) => it.disk_free,
    cell: (it) => TEXTS.limit(format.bytes(it.disk_free), format.bytes(it.disk_free_limit)),
    isNumber: true,
  },
  {
    id: "connections",
    head: words.pages.connections,
    by: (it) => it.sockets_used,
    isNumber: true,
    isWide: true,
  },
  {
    id: "processors",
    head: heads.processors,
    by: (it) => it.processors,
    isNumber: true,
    isWide: true,
  },
];

const ZONE: Column<Node> = { id: "zone", head: heads.zone, by: (it) => it.zone, isWide: true };

function State({ of }: { of: Node }) {
  return (
    <>
      <Tag tone={of.running === true ? "good" : "bad"}>
        {of.running === true ? TEXTS.running : TEXTS.notRunning}
      </Tag>
      {of.mem_alarm === true && <Tag tone="bad">{TEXTS.memoryAlarm}</Tag>}
      {of.disk_free_alarm === true && <Tag tone="bad">{TEXTS.diskAlarm}</Tag>}
    </>
  );
}

const DRAWN = [
  { number: "memory_mib", name: TEXTS.memoryMib },
  { number: "connections", name: words.pages.connections },
  { number: "publish", name: words.overview.rates.publish, isRate: true },
  { number: "deliver", name: words.overview.rates.deliver_get, isRate: true },
] as const;

export function Cluster() {
  const overview = useOverview();
  const query = useQuery<Node[]>("/nodes", 10_000);
  const node = said("node");
  const hasZones = query.data?.some((it) => it.zone) === true;
  const rows = (told: Node[]) =>
    told.map((it) => ({ ...it, ...liveNodes.value.find(({ name }) => name === it.name) }));
  return (
    <>
      <Head title={words.pages.cluster} />
      {overview.data && (
        <Card title={TEXTS.about}>
          <Facts
            of={[
              [words.clusterName, overview.data.cluster_name],
              [TEXTS.version, `${overview.data.product_name} ${overview.data.product_version}`],
              [TEXTS.likeVersion, overview.data.rabbitmq_version],
              [TEXTS.asked, overview.data.node],
              [
                TEXTS.listeners,
                overview.data.listeners
                  .map((it) => `${it.protocol} ${it.ip_address}:${it.port}`)
                  .join(", "),
              ],
            ]}
          />
        </Card>
      )}
      <ListCard
        id="n"
        title={TEXTS.nodes}
        of={query}
        rows={rows}
        columns={hasZones ? [...NODES, ZONE] : NODES}
        keyOf={(it) => it.name}
        order="name"
        isMain
        empty={<p>{words.none}</p>}
      />
      <History
        path={node === "" ? "/millrace/history" : path("millrace", "history", "nodes", node)}
        drawn={DRAWN}
        title={node === "" ? TEXTS.historyOfAll : TEXTS.historyOf(node)}
      />
      {node !== "" && <NodeDisk node={node} />}
      <Groups />
      {role.value.administrates && query.data && query.data.length > 1 && (
        <Orders nodes={query.data} />
      )}
      {role.value.administrates && <Definitions />}
    </>
  );
}

type Group = Reconciled["groups"][number];

const GROUPS: readonly Column<Group>[] = [
  {
    id: "group",
    head: heads.group,
    by: (it) => it.group,
    cell: (it) => (it.group === 0 ? TEXTS.catalog : it.group),
  },
  {
    id: "leader",
    head: heads.leader,
    by: (it) => leaderOf(it),
    cell: (it) => leaderOf(it) ?? <Tag tone="bad">{TEXTS.noLeader}</Tag>,
  },
  {
    id: "replicas",
    head: heads.replicas,
    cell: (it) => it.replicas.map(({ node }) => node).join(", "),
  },
  {
    id: "state",
    head: heads.state,
    by: (it) => it.differs,
    cell: (it) =>
      it.differs ? <Tag tone="bad">{TEXTS.differs}</Tag> : <Tag tone="good">{TEXTS.alike}</Tag>,
    isWide: true,
  },
];

const leaderOf = (group: Group): string | undefined =>
  group.replicas.find(({ leads }) => leads)?.node;

function Groups() {
  // An older node does not say it.
  const lags = useQuery<GroupLag[]>("/millrace/groups", 5_000);
  const behind: Column<Group> = {
    id: "behind",
    head: heads.behind,
    title: TEXTS.behindTitle,
    by: (it) => mostBehind(lags.data, it.group),
    cell: (it) => <Behind of={lags.data?.find(({ group }) => group === it.group)} />,
    wraps: true,
    isWide: true,
  };
  return (
    <ListCard
      id="g"
      title={TEXTS.groups}
      of={useQuery<Reconciled>("/millrace/reconcile", 30_000)}
      rows={(told) => told.groups}
      columns={lags.data ? [...GROUPS, behind] : GROUPS}
      keyOf={(it) => String(it.group)}
      order="group"
      empty={<p>{words.none}</p>}
    />
  );
}

function mostBehind(lags: GroupLag[] | undefined, group: number): number | undefined {
  const replicas = lags?.find((it) => it.group === group)?.replicas ?? [];
  const known = replicas.flatMap(({ behind }) => (behind === null ? [] : [behind]));
  return known.length === 0 ? undefined : Math.max(...known);
}

function Behind({ of }: { of: GroupLag | undefined }) {
  const known = (of?.replicas ?? []).filter(({ behind }) => behind !== null);
  if (known.length === 0) return <>{format.NOTHING}</>;
  const late = known.flatMap(({ node, behind }) => (behind ? [TEXTS.behind(node, behind)] : []));
  return <>{late.length === 0 ? TEXTS.upToDate : late.join(", ")}</>;
}

type Part = Disk["parts"][number];

function partName(name: string): string {
  const [kind = "", group] = name.split("/");
  return group === undefined ? (TEXTS.parts[kind] ?? name) : TEXTS.segments(group);
}

const PARTS: readonly Column<Part>[] = [
  { id: "part", head: heads.part, by: (it) => partName(it.name) },
  {
    id: "size",
    head: heads.size,
    by: (it) => it.bytes,
    cell: (it) => format.bytes(it.bytes),
    isNumber: true,
  },
  { id: "files", head: heads.files, by: (it) => it.files, isNumber: true },
];

/** What the data directory of a node takes. An older node does not say it. */
function NodeDisk({ node }: { node: string }) {
  const query = useQuery<Disk>(path("millrace", "nodes", node, "disk"), 30_000);
  if (query.refused?.status === 404 || query.refused?.status === 405) return null;
  return (
    <Card title={TEXTS.disk(node)}>
      <Loaded of={query} what={TEXTS.disk(node)}>
        {(told) => (
          <>
            <p class="dim">
              {TEXTS.diskText(told.path, format.bytes(told.free), format.bytes(told.total))}
            </p>
            <Table
              id="d"
              label={TEXTS.disk(node)}
              columns={PARTS}
              rows={told.parts}
              keyOf={(it) => it.name}
              order="-size"
              empty={<p>{words.none}</p>}
            />
          </>
        )}
      </Loaded>
    </Card>
  );
}
