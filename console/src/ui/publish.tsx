// Publishes a message, and says before which queues would get it, and why.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { change, path, withAsked } from "../core/api";
import { useQuery } from "../core/query";
import type { Explained, Message } from "../types";
import { words } from "../words";
import { AreaField, JsonField, SelectField, TextField } from "./fields";
import { PageForm, useDraft } from "./form";
import { jsonObject } from "./json";
import { tell } from "./notice";
import { Card, Failure } from "./parts";
import { Route } from "./route";

const TEXTS = words.publish;

/** A message that is published again: it fills the form once. */
export const template = signal<Message | undefined>(undefined);

interface Draft {
  exchange: string;
  key: string;
  headers: string;
  properties: string;
  payload: string;
  encoding: "string" | "base64";
}

function fresh(exchange: string, key: string): Draft {
  return {
    exchange,
    key,
    headers: "",
    properties: '{"delivery_mode": 2}',
    payload: "",
    encoding: "string",
  };
}

/** Headers that the broker gave the message on its way are not the publisher's. */
const OWN_HEADERS =
  /^x-(death|first-death-|last-death-|delivery-count|millrace-retries|stream-(offset|partition))/;

/** The headers that the publisher gave a message. */
export function ownHeaders({ properties: { headers = {} } }: Message): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !OWN_HEADERS.test(name)));
}

function copyOf(message: Message): Draft {
  const { headers: __, user_id: _, ...properties } = message.properties;
  const kept = ownHeaders(message);
  return {
    exchange: message.exchange,
    key: message.routing_key,
    headers: JSON.stringify(kept),
    properties: JSON.stringify(properties),
    payload: message.payload,
    encoding: message.payload_encoding,
  };
}

const QUIET_MS = 250;

/** A value once it has stood still for a moment. */
function useSettled<Value>(value: Value): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), QUIET_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

export function useExplained(
  vhost: string,
  exchange: string,
  key: string,
  headers: string,
): string {
  const to = path("millrace", "explain", vhost, exchange || "amq.default");
  return useSettled(withAsked(to, { routing_key: key, headers }));
}

interface Props {
  vhost: string;
  exchange: string;
  routingKey: string;
}

export function Publish({ vhost, exchange, routingKey }: Props) {
  const [draft, , bind] = useDraft<Draft>(() => {
    const from = template.peek();
    return from ? copyOf(from) : fresh(exchange, routingKey);
  });
  useEffect(() => {
    template.value = undefined;
  }, []);
  const [headers, properties] = [jsonObject(draft.headers), jsonObject(draft.properties)];
  const publish = async () => {
    const body = {
      routing_key: draft.key,
      payload: draft.payload,
      payload_encoding: draft.encoding,
      properties: { ...properties, headers: headers ?? {} },
    };
    const to = path("exchanges", vhost, draft.exchange || "amq.default", "publish");
    const { routed } = await change<{ routed: boolean }>("POST", to, body);
    tell(routed ? TEXTS.done : TEXTS.unrouted, !routed);
  };
  return (
    <div class="columns">
      <Card title={TEXTS.title}>
        <PageForm
          verb={TEXTS.verb}
          isReady={headers !== undefined && properties !== undefined}
          act={publish}
        >
          <TextField label={TEXTS.exchange} hint={TEXTS.exchangeHint} {...bind.text("exchange")} />
          <TextField label={TEXTS.key} {...bind.text("key")} />
          <JsonField label={TEXTS.headers} hint={TEXTS.headersHint} {...bind.text("headers")} />
          <JsonField
            label={TEXTS.properties}
            hint={TEXTS.propertiesHint}
            {...bind.text("properties")}
          />
          <AreaField label={TEXTS.payload} {...bind.text("payload")} />
          <SelectField
            label={TEXTS.encoding}
            {...bind.choice("encoding")}
            options={TEXTS.encodings}
          />
        </PageForm>
      </Card>
      <Preview vhost={vhost} draft={draft} />
    </div>
  );
}

function Preview({ vhost, draft }: { vhost: string; draft: Draft }) {
  const headers = jsonObject(draft.headers) ? draft.headers : "";
  const query = useQuery<Explained>(
    useExplained(vhost, draft.exchange, draft.key, headers),
    10_000,
  );
  return (
    <Card title={TEXTS.preview}>
      {query.refused && <Failure error={query.refused} />}
      {query.data && !query.refused && <Route told={query.data} vhost={vhost} />}
    </Card>
  );
}
