// One exchange: what it is bound to, and publishing with a look at the route.

import { change, path } from "../core/api";
import * as format from "../core/format";
import { go, said } from "../core/place";
import { useQuery } from "../core/query";
import { role } from "../core/session";
import type { Binding, Exchange } from "../types";
import { BindForm, BindingList } from "../ui/bindings";
import { Confirm } from "../ui/confirm";
import { Opener } from "../ui/form";
import { Arguments, Card, Facts, Head, Loaded, Tag } from "../ui/parts";
import { Publish } from "../ui/publish";
import { Tabs, currentTab } from "../ui/tabs";
import { words } from "../words";
import { Features } from "./exchanges";

const TEXTS = words.exchanges;

const DEFAULT = "amq.default";

export function ExchangePage() {
  const [vhost, name] = [said("vhost"), said("name")];
  const query = useQuery<Exchange>(path("exchanges", vhost, name || DEFAULT), 3_000);
  const mayChange = role.value.changes;
  const tabs: ["bindings" | "publish", string][] = [["bindings", TEXTS.bindings]];
  if (mayChange) tabs.push(["publish", TEXTS.publish]);
  return (
    <>
      <Head title={name || TEXTS.byDefault}>
        {mayChange && name !== "" && !name.startsWith("amq.") && (
          <Delete vhost={vhost} name={name} />
        )}
      </Head>
      <Loaded of={query} what={name || TEXTS.byDefault}>
        {(exchange) => (
          <>
            <p class="standing">
              <Tag>{exchange.type}</Tag>
              <Tag>{words.queue.inVhost(vhost)}</Tag>
              <Features of={exchange} />{" "}
              {Object.keys(exchange.arguments).length > 0 && <Arguments of={exchange.arguments} />}
            </p>
            <Messages of={exchange} />
            <Tabs label={name || TEXTS.byDefault} tabs={tabs} />
            {currentTab(tabs) === "publish" ? (
              <Publish vhost={vhost} exchange={name} routingKey="" />
            ) : (
              <Bindings vhost={vhost} name={name} mayChange={mayChange} />
            )}
          </>
        )}
      </Loaded>
    </>
  );
}

/** What clients have published to it. What comes by a binding from another exchange is not counted. */
function Messages({ of: { message_stats: stats } }: { of: Exchange }) {
  if (stats === undefined) return null;
  return (
    <Card title={TEXTS.messages}>
      <Facts
        of={[
          [TEXTS.heads.published, format.count(stats.publish_in)],
          [TEXTS.heads.in, format.rate(stats.publish_in_details.rate)],
          [TEXTS.heads.routed, format.count(stats.publish_out)],
          [TEXTS.heads.out, format.rate(stats.publish_out_details.rate)],
        ]}
      />
    </Card>
  );
}

function useBindings(vhost: string, name: string, side: "source" | "destination") {
  return useQuery<Binding[]>(path("exchanges", vhost, name || DEFAULT, "bindings", side));
}

function Bindings({ vhost, name, mayChange }: { vhost: string; name: string; mayChange: boolean }) {
  const from = useBindings(vhost, name, "source");
  const to = useBindings(vhost, name, "destination");
  const isDefault = name === "";
  return (
    <>
      {isDefault && <p>{TEXTS.defaultText}</p>}
      <BindingList
        id="f"
        title={words.bindings.from(name || TEXTS.byDefault)}
        of={from}
        mayChange={mayChange}
      />
      {mayChange && !isDefault && <BindForm vhost={vhost} exchange={name} />}
      {!isDefault && (
        <BindingList id="t" title={words.bindings.to(name)} of={to} mayChange={mayChange} />
      )}
    </>
  );
}

function Delete({ vhost, name }: { vhost: string; name: string }) {
  const { data = [] } = useBindings(vhost, name, "source");
  return (
    <Opener verb={`${words.remove}…`} class="danger">
      {(close) => (
        <Confirm
          title={TEXTS.deleteTitle(name)}
          name={name}
          verb={words.remove}
          done={TEXTS.deleted(name)}
          act={() => change("DELETE", path("exchanges", vhost, name))}
          onClose={close}
          onDone={() => go("/exchanges")}
        >
          <p>{TEXTS.deleteText(data.length)}</p>
          <ul>
            {data.slice(0, 5).map((it) => (
              <li key={it.destination + it.properties_key}>
                <code>{it.routing_key}</code> → {it.destination}
              </li>
            ))}
          </ul>
        </Confirm>
      )}
    </Opener>
  );
}
