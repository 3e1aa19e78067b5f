// Locks: who holds which, for how long yet, and the values beside them.

import { useState } from "preact/hooks";
import { change, path, withAsked } from "../core/api";
import { useVhosts } from "../core/broker";
import * as format from "../core/format";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { Lock } from "../types";
import { Confirm } from "../ui/confirm";
import { Dialog } from "../ui/dialog";
import { Copy, Facts, Head, Loaded, Tag } from "../ui/parts";
import { Search, filterText, matches } from "../ui/search";
import { Table, type Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.locks;
const { heads } = TEXTS;

const lockPath = (lock: Lock): string => path("millrace", "locks", lock.vhost, lock.name);

function columns(onRelease: ((lock: Lock) => void) | undefined): Column<Lock>[] {
  const shown: Column<Lock>[] = [
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
    { id: "owner", head: heads.owner, by: (it) => it.owner, cell: (it) => it.owner ?? "" },
    {
      id: "left",
      head: heads.left,
      by: (it) => it.left_ms,
      cell: (it) => format.duration(it.left_ms),
      isNumber: true,
      isWide: true,
    },
    {
      id: "token",
      head: heads.token,
      by: (it) => it.token,
      cell: (it) => format.count(it.token),
      isNumber: true,
      isWide: true,
    },
    {
      id: "value",
      head: heads.value,
      cell: (it) => (it.version > 0 ? words.yes : words.no),
      isWide: true,
    },
  ];
  const release = (it: Lock) =>
    it.held && (
      <button type="button" class="small danger" onClick={() => onRelease?.(it)}>
        {TEXTS.release}…
      </button>
    );
  return onRelease ? [...shown, { id: "release", head: "", cell: release }] : shown;
}

export function Locks() {
  const vhosts = useVhosts();
  const vhost = said("vhost") || (vhosts[0] ?? "/");
  const query = useQuery<Lock[]>(path("millrace", "locks", vhost), 3_000);
  const [released, setReleased] = useState<Lock | undefined>(undefined);
  const filter = filterText();
  const { administrates, changes } = role.value;
  const open = query.data?.find((it) => it.name === said("lock"));
  return (
    <>
      <Head title={words.pages.locks}>
        <Search label={words.pages.locks} />
        <select
          aria-label={words.vhost}
          value={vhost}
          onChange={(event) => show({ vhost: event.currentTarget.value })}
        >
          {vhosts.map((it) => (
            <option key={it} value={it} selected={it === vhost}>
              {it}
            </option>
          ))}
        </select>
      </Head>
      <Loaded of={query}>
        {(all) => (
          <Table
            label={words.pages.locks}
            columns={columns(administrates && changes ? setReleased : undefined)}
            rows={all.filter((it) => matches(filter, it.name, it.owner))}
            keyOf={(it) => it.name}
            order="name"
            isMain
            empty={all.length > 0 ? <p>{words.noneMatch}</p> : <Nothing />}
          />
        )}
      </Loaded>
      {open && <One lock={open} />}
      {released && (
        <Confirm
          title={TEXTS.releaseTitle(released.name)}
          name={released.name}
          verb={TEXTS.release}
          done={TEXTS.released(released.name)}
          act={() => change("DELETE", withAsked(lockPath(released), { force: true }))}
          onClose={() => setReleased(undefined)}
        >
          <p>{TEXTS.releaseText(released.owner ?? "", format.duration(released.left_ms))}</p>
        </Confirm>
      )}
    </>
  );
}

function Nothing() {
  return (
    <>
      <h2>{TEXTS.nothing}</h2>
      <p>{TEXTS.nothingMore}</p>
      <pre tabIndex={0}>{TEXTS.snippet}</pre>
      <Copy text={TEXTS.snippet} />
    </>
  );
}

/** The list leaves values out: who may read from the lock's name is shown its value. */
function One({ lock }: { lock: Lock }) {
  const query = useQuery<Lock>(lockPath(lock), 3_000);
  return (
    <Dialog title={lock.name} onClose={() => show({ lock: undefined })}>
      <Loaded of={query}>
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
            <h3>{heads.value}</h3>
            <pre tabIndex={0}>{told.value ?? words.none}</pre>
          </>
        )}
      </Loaded>
    </Dialog>
  );
}
