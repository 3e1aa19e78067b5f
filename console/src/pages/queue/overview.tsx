// How the queue stands, and stood.

import { path } from "../../core/api";
import * as format from "../../core/format";
import { queues } from "../../live/stream";
import type { Queue } from "../../types";
import { Card, Facts } from "../../ui/parts";
import { History } from "../../ui/history";
import { words } from "../../words";
import { Oldest } from "./oldest";

const TEXTS = words.queue;

const DRAWN = [
  { number: "messages_ready", name: TEXTS.facts.ready },
  { number: "messages_unacknowledged", name: TEXTS.facts.unacked },
  { number: "publish", name: TEXTS.facts.in, isRate: true },
  { number: "ack", name: TEXTS.facts.out, isRate: true },
] as const;

export function QueueOverview({ queue }: { queue: Queue }) {
  const { vhost, name } = queue;
  const live = queues().find(vhost, name);
  const own = queue.millrace ?? {};
  const { facts } = TEXTS;
  return (
    <>
      <Card title={TEXTS.now}>
        <Facts
          isBig
          of={[
            [facts.ready, format.count(live?.ready ?? queue.messages_ready)],
            [facts.unacked, format.count(live?.unacked ?? queue.messages_unacknowledged)],
            [
              facts.oldest,
              <Oldest
                queue={queue}
                ready={live?.ready ?? queue.messages_ready ?? 0}
                at={queue.oldest_ready_at ?? null}
              />,
            ],
            [facts.in, format.rate(live?.inRate)],
            [facts.out, format.rate(live?.outRate)],
            [facts.consumers, format.count(live?.consumers ?? queue.consumers)],
            [facts.bytes, format.bytes(queue.message_bytes_ready)],
            [facts.delayed, format.count(own.delayed)],
            [facts.leaving, format.count(own.leaving)],
          ]}
        />
      </Card>
      <History
        path={path("millrace", "history", "queues", vhost, name)}
        drawn={DRAWN}
        title={TEXTS.history}
      />
      <Card title={TEXTS.counts}>
        <Facts
          of={[
            [facts.publishedBytes, format.bytes(own.published_bytes)],
            [facts.deadLettered, format.count(own.dead_lettered)],
            [facts.dropped, format.count(own.dropped)],
            [facts.purged, format.count(own.purged)],
            [facts.duplicates, format.count(own.duplicates)],
            [facts.passedOver, format.count(own.passed_over)],
            [facts.heldBack, format.count(own.held_back)],
            [facts.leader, queue.leader ?? queue.node ?? format.NOTHING],
            [facts.members, queue.members?.join(", ") ?? format.NOTHING],
          ]}
        />
      </Card>
    </>
  );
}
