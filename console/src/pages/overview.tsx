// First glance: what is wrong, and what to do about it; then how much goes on.

import { useOverview, useProblems } from "../core/broker";
import * as format from "../core/format";
import { href, said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { now } from "../core/visible";
import { messagesOf, type QueueRow } from "../live/board";
import { isTold, queues, queuesQuery, totals } from "../live/stream";
import type { Count } from "../live/totals";
import { type Alike, keyOfProblem, worstFirst } from "../core/problems";
import type { Problem, Problems, Series } from "../types";
import { Card, Head, Loaded, QueueLink, Tag, queueHref } from "../ui/parts";
import { Snippets } from "../ui/snippets";
import { Spark } from "../ui/spark";
import { words } from "../words";

const TEXTS = words.overview;

/** So many problems are shown before somebody asks for all. */
const PROBLEMS_MAX = 6;

export function OverviewPage() {
  const problems = useProblems();
  return (
    <>
      <Head title={words.pages.overview} />
      <Loaded of={problems} what={TEXTS.problems}>
        {(told) => <Wrong told={told} />}
      </Loaded>
      <Rates />
      <Totals />
      <Loaded of={queuesQuery()} what={words.pages.queues}>
        {(board) => <Busiest rows={[...board.rows.values()]} />}
      </Loaded>
    </>
  );
}

function Wrong({ told }: { told: Problems }) {
  const { problems, left_out, silent } = told;
  if (problems.length === 0 && silent.length === 0) {
    return (
      <section class="verdict good">
        <h2>{TEXTS.allWell}</h2>
        <p>{TEXTS.allWellMore}</p>
      </section>
    );
  }
  const all = worstFirst(problems);
  const isWhole = said("problems") === "all";
  const shown = isWhole ? all : all.slice(0, PROBLEMS_MAX);
  return (
    <section aria-label={TEXTS.problems} class="problems">
      {shown.map((alike) => (
        <ProblemRow key={keyOfProblem(alike.first)} {...alike} />
      ))}
      {shown.length < all.length && (
        <button type="button" onClick={() => show({ problems: "all" })}>
          {TEXTS.showAll(all.length)}
        </button>
      )}
      {left_out > 0 && <p>{TEXTS.leftOut(left_out)}</p>}
      {silent.length > 0 && <p class="problem warning">{TEXTS.silent(silent)}</p>}
    </section>
  );
}

function placeOf(problem: Problem): string | undefined {
  const { queue, node, group } = problem.object;
  if (queue) return queueHref(queue.vhost, queue.name);
  if (node !== undefined || group !== undefined) return href("/cluster");
  return undefined;
}

function ProblemRow({ first: problem, count }: Alike) {
  const to = placeOf(problem);
  const since = problem.since;
  return (
    <article class={`problem ${problem.severity}`}>
      <p>
        <strong>{TEXTS.severity[problem.severity]}</strong>{" "}
        {to ? <a href={to}>{problem.what}</a> : problem.what}
        {count > 1 && <Tag>{TEXTS.alike(count)}</Tag>}
      </p>
      <p>
        {TEXTS.remedy} {problem.remedy}
        <span class="dim" title={format.time(since)}>
          {since !== null && TEXTS.since(format.ago(since, now.value), problem.seen_by.join(", "))}
        </span>
      </p>
    </article>
  );
}

/** Rates of the whole; who sees all gets the last hour behind them, others what came since the page was opened. */
function Rates() {
  const seesAll = role.value.monitors;
  const history = useQuery<Series>(
    seesAll ? "/millrace/history?seconds=3600" : undefined,
    10_000,
  ).data;
  const live = totals.value;
  const hour = (name: string): (number | null)[] | undefined => history?.series[name];
  const tile = (name: Count, past: string) => (
    <Tile
      key={name}
      name={TEXTS.rates[name]}
      value={format.rate(live?.rates[name])}
      unit={words.perSecond}
      trend={hour(past) ?? live?.trends[name] ?? []}
    />
  );
  return (
    <div class="tiles">
      {tile("publish", "publish")}
      {tile("confirm", "confirm")}
      {tile("deliver_get", "deliver")}
      {tile("ack", "ack")}
      {tile("return_unroutable", "return_unroutable")}
      {tile("drop_unroutable", "drop_unroutable")}
    </div>
  );
}

interface TileProps {
  name: string;
  value: string;
  unit?: string;
  trend?: readonly (number | null)[];
}

function Tile({ name, value, unit = "", trend }: TileProps) {
  return (
    <div class="tile">
      <span class="name">{name}</span>
      <span class="value">
        {value} <small>{unit}</small>
      </span>
      {trend && <Spark values={trend} width={160} height={28} label={words.trendOf(name)} />}
    </div>
  );
}

function Totals() {
  const { data } = useOverview();
  const board = queues();
  const told = totals.value?.told.object_totals;
  let [ready, unacked] = [0, 0];
  for (const row of board.rows.values()) {
    ready += row.ready;
    unacked += row.unacked;
  }
  const known = (value: number) => (isTold.value ? value : undefined);
  const counts: [string, number | undefined, string][] = [
    [TEXTS.totals.ready, known(ready), href("/queues", { sort: "-ready" })],
    [TEXTS.totals.unacked, known(unacked), "/held"],
    [words.pages.queues, known(board.rows.size), "/queues"],
    [words.pages.exchanges, data?.object_totals.exchanges, "/exchanges"],
    [words.pages.connections, told?.connections, "/connections"],
    [words.pages.channels, told?.channels, "/channels"],
    [words.pages.consumers, told?.consumers, "/consumers"],
  ];
  return (
    <div class="tiles small">
      {counts.map(([name, value, to]) => (
        <a key={name} href={to} class="tile">
          <span class="name">{name}</span>
          <span class="value">{format.count(value)}</span>
        </a>
      ))}
    </div>
  );
}

const LISTED_MAX = 6;

function top(rows: readonly QueueRow[], value: (row: QueueRow) => number): QueueRow[] {
  const some = rows.filter((row) => value(row) > 0);
  return some.sort((one, other) => value(other) - value(one)).slice(0, LISTED_MAX);
}

function Busiest({ rows }: { rows: QueueRow[] }) {
  if (rows.length === 0) {
    return (
      <Card title={words.queues.empty}>
        <Snippets />
      </Card>
    );
  }
  const growth = (row: QueueRow) => row.inRate - row.outRate;
  return (
    <div class="columns">
      <Ranked
        title={TEXTS.deepest}
        rows={top(rows, messagesOf)}
        value={(row) => format.count(messagesOf(row))}
        sort="-messages"
      />
      <Ranked
        title={TEXTS.growing}
        rows={top(rows, growth)}
        value={(row) => format.change(growth(row))}
        sort="-growth"
      />
    </div>
  );
}

interface RankedProps {
  title: string;
  rows: readonly QueueRow[];
  value: (row: QueueRow) => string;
  sort: string;
}

function Ranked({ title, rows, value, sort }: RankedProps) {
  return (
    <Card title={title} aside={<a href={href("/queues", { sort })}>{words.all}</a>}>
      {rows.length === 0 && <p class="dim">{words.none}</p>}
      <ul class="ranked">
        {rows.map((row) => (
          <li key={row.id}>
            <QueueLink vhost={row.vhost} name={row.name} />
            <span class="dim">{row.vhost}</span>
            <Spark values={row.trend} label={words.trendOf(row.name)} />
            <span class="number">{value(row)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
