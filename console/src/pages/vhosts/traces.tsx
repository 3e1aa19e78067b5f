// Messages that a vhost traces, one by one: a short queue is bound to where their copies go, and is looked at.

import { change, path } from "../../core/api";
import { go } from "../../core/place";
import { FormDialog, Opener } from "../../ui/form";
import { queueHref } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.vhosts.traces;

const EXCHANGE = "amq.rabbitmq.trace";
const QUEUE = "millrace.traces";

/** The newest messages, for as long as somebody may still look. */
const ARGUMENTS = { "x-queue-type": "classic", "x-max-length": 1_000, "x-expires": 3_600_000 };

async function collect(vhost: string): Promise<void> {
  await change("PUT", path("queues", vhost, QUEUE), { durable: true, arguments: ARGUMENTS });
  const binding = { routing_key: "#", arguments: {} };
  await change("POST", path("bindings", vhost, "e", EXCHANGE, "q", QUEUE), binding);
}

export function Traces({ vhost }: { vhost: string }) {
  return (
    <Opener verb={`${TEXTS.verb}…`} class="small">
      {(close) => (
        <FormDialog
          title={TEXTS.title(vhost)}
          verb={TEXTS.collect}
          act={() => collect(vhost)}
          onClose={close}
          onDone={() => go(queueHref(vhost, QUEUE, "messages"))}
        >
          <p>{TEXTS.text(QUEUE)}</p>
        </FormDialog>
      )}
    </Opener>
  );
}
