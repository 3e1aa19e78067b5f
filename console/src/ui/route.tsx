// Where a message would go, exchange by exchange, and what each queue would do with it.

import * as format from "../core/format";
import type { Explained } from "../types";
import { words } from "../words";
import { ExchangeLink, QueueLink, Tag } from "./parts";

const TEXTS = words.route;

/** Bindings that do not fit are shown up to so many: of the others there is only the count. */
const OTHERS_MAX = 5;

export function Route({ told, vhost }: { told: Explained; vhost: string }) {
  return (
    <>
      {told.refused !== null && <p class="fault">{told.refused}</p>}
      <p>
        <Tag tone={told.is_routed ? "good" : "bad"}>
          {told.is_routed ? TEXTS.routed(told.queue_count) : TEXTS.unrouted}
        </Tag>
      </p>
      <ul class="lines">
        {told.queues.map((queue) => (
          <li key={queue.name}>
            <QueueLink vhost={vhost} name={queue.name} />{" "}
            <span class={queue.is_refused ? "fault" : ""}>{queue.outcome}</span>{" "}
            <span class="dim">
              {TEXTS.stands(format.count(queue.messages_ready), queue.consumers)}
            </span>
          </li>
        ))}
      </ul>
      {told.hops.map((hop) => (
        <Hop key={hop.exchange} hop={hop} vhost={vhost} />
      ))}
    </>
  );
}

function Hop({ hop, vhost }: { hop: Explained["hops"][number]; vhost: string }) {
  const taken = hop.bindings.filter((it) => it.matches);
  const others = hop.bindings.filter((it) => !it.matches);
  const left = others.length - OTHERS_MAX + hop.bindings_left_out;
  return (
    <>
      <h3>
        <ExchangeLink vhost={vhost} name={hop.exchange} /> <span class="dim">{hop.type}</span>
      </h3>
      {hop.one_of_several && <p class="dim">{hop.by_chance ? TEXTS.byChance : TEXTS.byHash}</p>}
      <ul class="lines">
        {[...taken, ...others.slice(0, OTHERS_MAX)].map((it) => (
          <li
            key={it.destination_type + it.destination + it.routing_key}
            class={it.matches ? "" : "dim"}
          >
            <Tag tone={it.is_taken ? "good" : "calm"}>
              {it.is_taken ? TEXTS.taken : it.matches ? TEXTS.notTaken : TEXTS.noMatch}
            </Tag>{" "}
            <code>{it.routing_key || TEXTS.noKey}</code> →{" "}
            {it.destination_type === "queue" ? (
              <QueueLink vhost={vhost} name={it.destination} />
            ) : (
              <ExchangeLink vhost={vhost} name={it.destination} />
            )}
          </li>
        ))}
      </ul>
      {left > 0 && <p class="dim">{words.andMore(left)}</p>}
      {hop.alternate_exchange !== null && (
        <p>
          {TEXTS.alternate} <ExchangeLink vhost={vhost} name={hop.alternate_exchange} />
        </p>
      )}
    </>
  );
}
