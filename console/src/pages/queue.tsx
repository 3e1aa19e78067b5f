// One queue, stream or subscription.

import { useState } from "preact/hooks";
import { change, path } from "../core/api";
import * as format from "../core/format";
import { go, said } from "../core/place";
import { useQuery } from "../core/query";
import { mayPurge, role } from "../core/session";
import { now } from "../core/visible";
import type { Queue } from "../types";
import { useAct } from "../ui/act";
import { Head, Loaded, Tag, queueHref } from "../ui/parts";
import { Publish } from "../ui/publish";
import { Tabs, currentTab } from "../ui/tabs";
import { words } from "../words";
import { Destroy } from "./queue/destroy";
import { Purged } from "./queue/purged";
import { MessagesTab } from "./queue/messages";
import { QueueBindings } from "./queue/bindings";
import { QueueConsumers } from "./queue/consumers";
import { QueueOverview } from "./queue/overview";
import { Settings } from "./queue/settings";
import { StreamTab } from "./queue/stream";

const TEXTS = words.queue;
const EVERY_MS = 2_000;

type Tab = keyof typeof TEXTS.tabs;

function tabsOf(queue: Queue): [Tab, string][] {
  const { peeks, changes } = role.value;
  const isStreamy = queue.type === "stream" || queue.type === "subscription";
  const tabs: Record<Tab, boolean> = {
    overview: true,
    messages: peeks,
    stream: isStreamy,
    consumers: true,
    settings: true,
    bindings: queue.type !== "subscription",
    publish: changes && queue.type !== "subscription",
  };
  return (Object.keys(tabs) as Tab[])
    .filter((tab) => tabs[tab])
    .map((tab) => [tab, TEXTS.tabs[tab]]);
}

export function QueuePage() {
  const [vhost, name] = [said("vhost"), said("name")];
  const query = useQuery<Queue>(path("queues", vhost, name), EVERY_MS);
  return (
    <>
      <Head title={name}>{query.data && <Actions queue={query.data} />}</Head>
      <Loaded of={query} what={name}>
        {(queue) => {
          const tabs = tabsOf(queue);
          return (
            <>
              <Standing queue={queue} />
              <Purged queue={queue} />
              <Tabs label={name} tabs={tabs} />
              <Shown tab={currentTab(tabs)} queue={queue} />
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function Standing({ queue }: { queue: Queue }) {
  const { paused, paused_by, paused_at } = queue;
  return (
    <p class="standing">
      <Tag>{queue.type}</Tag>
      <Tag>{TEXTS.inVhost(queue.vhost)}</Tag>
      {queue.state !== "running" && <Tag tone="bad">{words.queues.down}</Tag>}
      {paused && (
        <Tag tone="warn" title={format.time(paused_at)}>
          {TEXTS.pausedBy(paused_by ?? "", format.ago(paused_at, now.value))}
        </Tag>
      )}
    </p>
  );
}

function Shown({ tab, queue }: { tab: Tab; queue: Queue }) {
  switch (tab) {
    case "overview":
      return <QueueOverview queue={queue} />;
    case "messages":
      return <MessagesTab queue={queue} />;
    case "stream":
      return <StreamTab queue={queue} />;
    case "consumers":
      return <QueueConsumers queue={queue} />;
    case "settings":
      return <Settings queue={queue} />;
    case "bindings":
      return <QueueBindings queue={queue} />;
    case "publish":
      return <Publish vhost={queue.vhost} exchange="" routingKey={queue.name} />;
  }
}

function Actions({ queue }: { queue: Queue }) {
  const [destroying, setDestroying] = useState<"purge" | "delete" | undefined>(undefined);
  const { isBusy, run } = useAct();
  const { makesPolicies, changes, peeks } = role.value;
  if (!changes) return null;
  const canPurge = mayPurge(queue.vhost, queue.name);
  const pausePath = path("millrace", "queues", queue.vhost, queue.name, "pause");
  const pause = () =>
    run(() => change(queue.paused ? "DELETE" : "PUT", pausePath), TEXTS.pauseDone(queue.paused));
  return (
    <>
      {peeks && (
        <a class="button" href={queueHref(queue.vhost, queue.name, "messages")}>
          {TEXTS.look}
        </a>
      )}
      {makesPolicies && (
        <button
          type="button"
          disabled={isBusy}
          title={TEXTS.pauseTitle}
          onClick={() => void pause()}
        >
          {queue.paused ? TEXTS.resume : TEXTS.pause}
        </button>
      )}
      {queue.type !== "stream" && queue.type !== "subscription" && canPurge && (
        <button type="button" class="danger" onClick={() => setDestroying("purge")}>
          {TEXTS.purge.verb}…
        </button>
      )}
      <button type="button" class="danger" onClick={() => setDestroying("delete")}>
        {TEXTS.delete.verb}…
      </button>
      {destroying && (
        <Destroy
          queue={queue}
          how={destroying}
          onClose={() => setDestroying(undefined)}
          onDone={() => destroying === "delete" && go("/queues")}
        />
      )}
    </>
  );
}
