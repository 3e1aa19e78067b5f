// A worker: its pipelines, which take jobs, and its targets, which execute them.

import { change, path } from "../../core/api";
import * as format from "../../core/format";
import { role } from "../../core/session";
import { now } from "../../core/visible";
import { ActButton } from "../../ui/form";
import { Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { words } from "../../words";
import { type RateOf, seconds } from "./relay";
import type { Pipeline, Target, WorkerStatus } from "./told";

const TEXTS = words.companions;
const { heads } = TEXTS;

/** Errors of a target that are shown. */
const ERRORS_SHOWN = 5;

const of = (counts: Record<string, number>, name: string): number => counts[name] ?? 0;

const number = <Row,>(
  id: string,
  head: string,
  by: (row: Row) => number | undefined,
  isWide = false,
): Column<Row> => ({ id, head, by, isNumber: true, isWide });

function pipelineColumns(
  rate: RateOf,
  status: WorkerStatus,
  address: string,
): readonly Column<Pipeline>[] {
  const done = (it: Pipeline) => rate(`done ${it.name}`, of(it.outcomes, "done"));
  return [
    { id: "name", head: heads.pipeline, by: (it) => it.name },
    { id: "source", head: heads.source, by: (it) => it.source, isWide: true },
    { id: "target", head: heads.target, by: (it) => it.target, isWide: true },
    {
      id: "rate",
      head: heads.doneRate,
      by: done,
      cell: (it) => format.rate(done(it)),
      isNumber: true,
      isWide: true,
    },
    number("hand", heads.inHand, (it) => it.in_hand, true),
    number("running", heads.running, (it) => it.running, true),
    {
      id: "oldest",
      head: heads.oldest,
      by: (it) => it.oldest_s,
      cell: (it) => (it.in_hand === 0 ? format.NOTHING : seconds(it.oldest_s)),
      isNumber: true,
      isWide: true,
    },
    number("done", heads.done, (it) => of(it.settled, "done"), true),
    number("later", heads.later, (it) => of(it.settled, "later"), true),
    number("dead", heads.dead, (it) => of(it.settled, "dead"), true),
    {
      id: "state",
      head: heads.state,
      cell: (it) => <PipelineState of={it} status={status} address={address} />,
      wraps: true,
    },
  ];
}

interface StateProps {
  of: Pipeline;
  status: WorkerStatus;
  address: string;
}

function PipelineState({ of: it, status, address }: StateProps) {
  const isAlone = typeof it.paused_by === "string";
  return (
    <span class="chain">
      {it.away !== null && (
        <Tag tone="bad" title={it.away}>
          {TEXTS.away}
        </Tag>
      )}
      {isAlone && (
        <Tag tone="warn" title={format.time(it.paused_at)}>
          {words.queue.pausedBy(it.paused_by ?? "", format.ago(it.paused_at, now.value))}
        </Tag>
      )}
      {it.is_paused && !isAlone && (
        <Tag tone="warn">{status.is_paused ? TEXTS.withWorker : TEXTS.paused}</Tag>
      )}
      {!it.is_paused && it.away === null && <Tag tone="good">{TEXTS.runs}</Tag>}{" "}
      {it.paused_by !== undefined && role.value.administrates && role.value.changes && (
        <ActButton
          verb={isAlone ? TEXTS.resume : TEXTS.pause}
          label={isAlone ? TEXTS.resumePipeline(it.name) : TEXTS.pausePipeline(it.name)}
          act={() =>
            change(
              isAlone ? "DELETE" : "PUT",
              path("millrace", "companions", address, "pause", it.name),
            )
          }
          done={isAlone ? TEXTS.pipelineGoesOn(it.name) : TEXTS.pipelineRests(it.name)}
        />
      )}
    </span>
  );
}

const TARGETS: readonly Column<Target>[] = [
  { id: "name", head: heads.target, by: (it) => it.name },
  { id: "kind", head: heads.kind, by: (it) => it.kind, isWide: true },
  number("running", heads.running, (it) => it.running),
  number("done", heads.done, (it) => of(it.outcomes, "done")),
  number("retry", heads.retry, (it) => of(it.outcomes, "retry"), true),
  number("throttle", heads.throttled, (it) => of(it.outcomes, "throttle"), true),
  number("reject", heads.rejected, (it) => of(it.outcomes, "reject"), true),
  { id: "state", head: heads.state, cell: (it) => <TargetState of={it} />, wraps: true },
];

function TargetState({ of: it }: { of: Target }) {
  const found: [string | null, string][] = [
    [it.stopped, TEXTS.stopped],
    [it.breaker, TEXTS.breaker],
    [it.throttle, TEXTS.throttled],
  ];
  const some = found.filter(([why]) => why !== null);
  if (some.length === 0) return <Tag tone="good">{TEXTS.runs}</Tag>;
  return (
    <>
      {some.map(([why, what]) => (
        <div key={what}>
          <Tag tone={what === TEXTS.stopped ? "bad" : "warn"}>{what}</Tag> {why}
        </div>
      ))}
    </>
  );
}

interface Props {
  id: string;
  address: string;
  status: WorkerStatus;
  rate: RateOf;
}

export function Worker({ id, address, status, rate }: Props) {
  const errors = status.targets.flatMap((target) =>
    target.errors.slice(0, ERRORS_SHOWN).map((error) => ({ ...error, target: target.name })),
  );
  return (
    <>
      <h3>{TEXTS.pipelines}</h3>
      <Table
        id={`p${id}`}
        label={TEXTS.pipelines}
        columns={pipelineColumns(rate, status, address)}
        rows={status.pipelines}
        keyOf={(it) => it.name}
        order="name"
        empty={<p>{TEXTS.noPipeline}</p>}
      />
      <h3>{TEXTS.targets}</h3>
      <Table
        id={`t${id}`}
        label={TEXTS.targets}
        columns={TARGETS}
        rows={status.targets}
        keyOf={(it) => it.name}
        order="name"
        empty={<p>{TEXTS.noTarget}</p>}
      />
      {errors.length > 0 && (
        <>
          <h3>{TEXTS.errors}</h3>
          <ul class="sample">
            {errors.map(({ target, why, count }) => (
              <li key={`${target} ${why}`}>
                {target}, {format.counted(count, TEXTS.time, TEXTS.times)}: <code>{why}</code>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
