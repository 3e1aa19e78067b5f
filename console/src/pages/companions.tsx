// Relays and workers beside the broker. The node asks them, at the addresses of its configuration.

import { useMemo } from "preact/hooks";
import { change, path } from "../core/api";
import { Meter } from "../core/meter";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import { ActButton } from "../ui/form";
import { Nothing } from "../ui/list";
import { Card, Copy, Head, Loaded, Tag } from "../ui/parts";
import { Search, filterText, matches } from "../ui/search";
import { words } from "../words";
import { Inbox, Relay } from "./companions/relay";
import { type Merged, merged } from "./companions/merged";
import type { Companion } from "./companions/told";
import { Worker } from "./companions/worker";

const TEXTS = words.companions;

const EVERY_MS = 2_000;

export function Companions() {
  const query = useQuery<Companion[]>("/millrace/companions", EVERY_MS);
  const meter = useMemo(() => new Meter(), []);
  const filter = filterText();
  return (
    <>
      <Head title={words.pages.companions}>
        <Search label={words.pages.companions} />
      </Head>
      <Loaded of={query} what={words.pages.companions}>
        {(all) => {
          const shown = merged(all).filter((it) =>
            matches(filter, it.address, ...it.by, it.kind, it.error),
          );
          if (all.length === 0) return <None />;
          if (shown.length === 0) return <p>{words.noneMatch}</p>;
          return shown.map((it, index) => (
            <One key={`${it.node} ${it.address}`} it={it} id={String(index)} meter={meter} />
          ));
        }}
      </Loaded>
    </>
  );
}

function None() {
  return (
    <div class="empty">
      <Nothing text={TEXTS.nothing}>
        <p>{TEXTS.nothingMore}</p>
        <pre tabIndex={0}>{TEXTS.snippet}</pre>
        <Copy text={TEXTS.snippet} />
      </Nothing>
    </div>
  );
}

interface Props {
  it: Merged;
  /** Parts the values of its tables in the address. */
  id: string;
  meter: Meter;
}

function One({ it, id, meter }: Props) {
  const rate = (name: string, total: number) =>
    meter.of(JSON.stringify([it.node, it.address, name]), total, it.at);
  const kind = it.kind === null ? TEXTS.unknown : TEXTS.kinds[it.kind];
  return (
    <Card title={TEXTS.title(kind, it.address)} aside={<Standing of={it} />}>
      <p class="dim">{TEXTS.askedBy(it.by.join(", "))}</p>
      {it.error !== null && <p role="alert">{it.error}</p>}
      {it.status?.problem && <p role="alert">{it.status.problem}</p>}
      {it.kind === "relay" && <Relay status={it.status} rate={rate} />}
      {(it.kind === "relay" || it.kind === "worker") && (
        <Pause kind={kind} address={it.address} isPaused={it.status.is_paused} />
      )}
      {it.kind === "inbox" && <Inbox status={it.status} rate={rate} />}
      {it.kind === "worker" && (
        <Worker id={id} address={it.address} status={it.status} rate={rate} />
      )}
    </Card>
  );
}

interface PauseProps {
  kind: string;
  address: string;
  isPaused: boolean | undefined;
}

/** Has a relay or a worker rest, and go on. One that is too old does not say whether it does. */
function Pause({ kind, address, isPaused }: PauseProps) {
  if (isPaused === undefined || !role.value.administrates) return null;
  const to = path("millrace", "companions", address, "pause");
  return (
    <div class="actions">
      <ActButton
        verb={isPaused ? TEXTS.resume : TEXTS.pause}
        act={() => change(isPaused ? "DELETE" : "PUT", to)}
        done={isPaused ? TEXTS.toldToGoOn(kind, address) : TEXTS.toldToRest(kind, address)}
      />
    </div>
  );
}

function Standing({ of: { status, error } }: { of: Companion }) {
  if (error !== null || status === null) return <Tag tone="bad">{TEXTS.silent}</Tag>;
  if ("is_standby" in status && status.is_standby)
    return <Tag title={TEXTS.standbyTitle}>{TEXTS.standby}</Tag>;
  if ("is_paused" in status && status.is_paused)
    return <Tag title={TEXTS.restsTitle}>{TEXTS.rests}</Tag>;
  return status.is_ready ? (
    <Tag tone="good">{TEXTS.ready}</Tag>
  ) : (
    <Tag tone="bad">{TEXTS.notReady}</Tag>
  );
}
