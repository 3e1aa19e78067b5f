// What happened in the time of a chart: other leaders, starts of nodes, deployments. A line in the chart stands for
// each, and below it is said what it was.

import { useState } from "preact/hooks";
import { change } from "../core/api";
import * as format from "../core/format";
import { role } from "../core/session";
import { keyOf } from "../live/board";
import type { LeaderMark, Mark } from "../types";
import { words } from "../words";
import { TextField } from "./fields";
import { FormDialog, Opener, useDraft } from "./form";
import { QueueLink } from "./parts";

const TEXTS = words.marks;

/** Rows that are shown at first. */
const SHOWN = 6;

/** Leaders that change so close to each other, from the same node to the same, are said in one row. */
const TOGETHER_MS = 10_000;

export interface Told {
  at: number;
  kind: Mark["kind"];
  /** Of leaders: all that changed together. */
  marks: readonly Mark[];
}

/** Marks as rows, the newest first. */
export function together(marks: readonly Mark[]): Told[] {
  const rows: { at: number; kind: Mark["kind"]; marks: Mark[] }[] = [];
  for (const mark of marks) {
    const known = rows.find(
      (row) => mark.at - row.at < TOGETHER_MS && row.marks[0] && isAlike(row.marks[0], mark),
    );
    if (known) known.marks.push(mark);
    else rows.push({ at: mark.at, kind: mark.kind, marks: [mark] });
  }
  return rows.reverse();
}

const isAlike = (one: Mark, other: Mark): boolean =>
  one.kind === "leader" &&
  other.kind === "leader" &&
  one.from === other.from &&
  one.to === other.to;

/** A text that no other row has: several things may happen at the same time. */
export function keyOfTold({ at, kind, marks }: Told): string {
  const [first] = marks;
  switch (first?.kind) {
    case "leader":
      return JSON.stringify([kind, at, first.from, first.to]);
    case "start":
      return JSON.stringify([kind, at, first.node]);
    case "deployment":
      return JSON.stringify([kind, at, first.text, first.user]);
    case undefined:
      return JSON.stringify([kind, at]);
  }
}

export function Marks({ of, leftOut }: { of: readonly Mark[]; leftOut: number }) {
  const [isWhole, setWhole] = useState(false);
  const rows = together(of);
  if (rows.length === 0) return <p class="dim">{TEXTS.none}</p>;
  const shown = isWhole ? rows : rows.slice(0, SHOWN);
  return (
    <>
      <h3>{TEXTS.title}</h3>
      <ul class="marks">
        {shown.map((row) => (
          <li key={keyOfTold(row)}>
            <span class={`mark ${row.kind}`} aria-hidden="true" />
            <time>{format.time(row.at)}</time>
            <span>
              <What of={row} />
            </span>
          </li>
        ))}
      </ul>
      {shown.length < rows.length && (
        <button type="button" class="small" onClick={() => setWhole(true)}>
          {TEXTS.showAll(rows.length)}
        </button>
      )}
      {leftOut > 0 && <p class="dim">{TEXTS.leftOut(leftOut)}</p>}
    </>
  );
}

function What({ of: { marks } }: { of: Told }) {
  const [first] = marks;
  if (first === undefined) return null;
  if (first.kind === "start") return <>{TEXTS.start(first.node)}</>;
  if (first.kind === "deployment") return <>{TEXTS.deployment(first.text, first.user)}</>;
  const leaders = marks.filter((it): it is LeaderMark => it.kind === "leader");
  return (
    <>
      {TEXTS.leader(groupsOf(leaders), first.from, first.to)} <Concerned of={leaders} />
    </>
  );
}

function groupsOf(leaders: readonly LeaderMark[]): string {
  if (leaders.length > SHOWN) return TEXTS.groups(leaders.length);
  return leaders.map(({ group }) => TEXTS.group(group)).join(", ");
}

/** Queues whose leader changed. */
function Concerned({ of }: { of: readonly LeaderMark[] }) {
  // A queue of several partitions may be in several groups.
  const all = new Map(
    of.flatMap((mark) => mark.queues).map((queue) => [keyOf(queue.vhost, queue.name), queue]),
  );
  const queues = [...all.values()].slice(0, SHOWN);
  const more = of.reduce((sum, mark) => sum + mark.queue_count, 0) - queues.length;
  if (queues.length === 0) return <span class="dim">{TEXTS.noQueue}</span>;
  return (
    <span>
      {TEXTS.concerned}{" "}
      {queues.map(({ vhost, name }, index) => (
        <span key={keyOf(vhost, name)}>
          {index > 0 && ", "}
          <QueueLink vhost={vhost} name={name} />
        </span>
      ))}
      {more > 0 && ` ${words.andMore(more)}`}
    </span>
  );
}

/** A button that tells of a deployment, for who may. */
export function TellDeployment() {
  if (!role.value.monitors || !role.value.changes) return null;
  return (
    <Opener verb={TEXTS.tell} class="small">
      {(close) => <DeploymentForm onClose={close} />}
    </Opener>
  );
}

function DeploymentForm({ onClose }: { onClose: () => void }) {
  const [draft, , bind] = useDraft({ text: "" });
  return (
    <FormDialog
      title={TEXTS.tellTitle}
      verb={words.save}
      act={() => change("POST", "/millrace/marks", draft)}
      done={TEXTS.told}
      isReady={draft.text.trim() !== ""}
      onClose={onClose}
    >
      <TextField
        label={TEXTS.what}
        hint={TEXTS.whatHint}
        maxLength={256}
        required
        {...bind.text("text")}
      />
    </FormDialog>
  );
}
