// Locks: who holds which, for how long yet, and the values beside them.

import { useState } from "preact/hooks";
import { change, path, withAsked } from "../core/api";
import * as format from "../core/format";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { now } from "../core/visible";
import type { Lock } from "../types";
import { Confirm } from "../ui/confirm";
import { Dialog } from "../ui/dialog";
import { useFirstVhost } from "../ui/fields";
import { ListPage, Nothing } from "../ui/list";
import { Copy, Facts, Loaded, Tag } from "../ui/parts";
import { VhostSelect } from "../ui/search";
import type { Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.locks;
const { heads } = TEXTS;

const lockPath = (lock: Lock): string => path("millrace", "locks", lock.vhost, lock.name);

const COLUMNS: readonly Column<Lock>[] = [
  {
    id: "name",
    head: words.name,
    by: (it) => it.name,
    cell: (it) => (
      <button type="button" class="link" onClick={() => show({ lock: it.name }, "push")}>
        {it.name}
      </button>
    ),
  },
  {
    id: "held",
    head: heads.state,
    by: (it) => it.held,
    cell: (it) => <Tag tone={it.held ? "good" : "calm"}>{it.held ? TEXTS.held : TEXTS.free}</Tag>,
  },
  { id: "owner", head: heads.owner, by: (it) => it.owner },
  {
    id: "left",
    head: heads.left,
    by: (it) => it.left_ms,
    cell: (it) => format.duration(it.left_ms),
    isNumber: true,
    isWide: true,
  },
  { id: "token", head: heads.token, by: (it) => it.token, isNumber: true, isWide: true },
  {
    id: "value",
    head: heads.value,
    cell: (it) => (it.version > 0 ? words.yes : words.no),
    isWide: true,
  },
];

export function Locks() {
  const vhost = useFirstVhost();
  const query = useQuery<Lock[]>(path("millrace", "locks", vhost), 3_000);
  const [released, setReleased] = useState<Lock | undefined>(undefined);
  const mayRelease = role.value.administrates && role.value.changes;
  const open = query.data?.find((it) => it.name === said("lock"));
  const release: Column<Lock> = {
    id: "release",
    head: "",
    cell: (it) =>
      it.held && (
        <button type="button" class="small danger" onClick={() => setReleased(it)}>
          {TEXTS.release}…
        </button>
      ),
  };
  return (
    <>
      <ListPage
        title={words.pages.locks}
        of={query}
        texts={(it) => [it.name, it.owner]}
        columns={mayRelease ? [...COLUMNS, release] : COLUMNS}
        keyOf={(it) => it.name}
        order="name"
        actions={<VhostSelect value={vhost} />}
        empty={
          <Nothing text={TEXTS.nothing}>
            <p>{TEXTS.nothingMore}</p>
            <pre tabIndex={0}>{TEXTS.snippet}</pre>
            <Copy text={TEXTS.snippet} />
          </Nothing>
        }
      />
      {open && <One lock={open} />}
      {released && <Release lock={released} onClose={() => setReleased(undefined)} />}
    </>
  );
}

function Release({ lock, onClose }: { lock: Lock; onClose: () => void }) {
  return (
    <Confirm
      title={TEXTS.releaseTitle(lock.name)}
      name={lock.name}
      verb={TEXTS.release}
      done={TEXTS.released(lock.name)}
      act={() => change("DELETE", withAsked(lockPath(lock), { force: true }))}
      onClose={onClose}
    >
      <p>{TEXTS.releaseText(lock.owner ?? "", format.duration(lock.left_ms))}</p>
    </Confirm>
  );
}

/** The list leaves values out: who may read from the lock's name is shown its value. */
function One({ lock }: { lock: Lock }) {
  const query = useQuery<Lock>(lockPath(lock), 3_000);
  return (
    <Dialog title={lock.name} onClose={() => show({ lock: undefined })}>
      <Loaded of={query} what={lock.name}>
        {(told) => (
          <>
            <Facts
              of={[
                [heads.owner, told.owner ?? TEXTS.free],
                [heads.left, format.duration(told.left_ms)],
                [heads.token, format.count(told.token)],
                [TEXTS.version, format.count(told.version)],
              ]}
            />
            {told.waiting !== undefined && <Waiting of={told} />}
            <h3>{heads.value}</h3>
            <pre tabIndex={0}>{told.value ?? words.none}</pre>
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

/** Who waits for the lock, the first first. */
function Waiting({ of: { waiting, waiting_count } }: { of: Lock }) {
  const more = (waiting_count ?? 0) - (waiting?.length ?? 0);
  if (!waiting) return <p class="dim">{TEXTS.waitersUnknown}</p>;
  return (
    <>
      <h3>{TEXTS.waiting}</h3>
      {waiting.length === 0 && <p class="dim">{TEXTS.nobodyWaits}</p>}
      <ul class="lines">
        {waiting.map(({ owner, since }, index) => (
          <li key={index}>{TEXTS.waits(owner, format.ago(since, now.value))}</li>
        ))}
        {more > 0 && <li>{words.andMore(more)}</li>}
      </ul>
    </>
  );
}
