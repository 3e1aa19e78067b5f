// The frame around all pages: who is logged in, where one can go, and which page is shown.

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { useBrought } from "./core/identity";
import { place } from "./core/place";
import { forget } from "./core/query";
import { recall, session, standing } from "./core/session";
import { allowedPages, parentOf } from "./core/sitemap";
import { Audit } from "./pages/audit";
import { Channels } from "./pages/channels";
import { Cluster } from "./pages/cluster";
import { ConnectionPage } from "./pages/connection";
import { Companions } from "./pages/companions";
import { Connections } from "./pages/connections";
import { Consumers } from "./pages/consumers";
import { DeadLetters } from "./pages/dead";
import { ExchangePage } from "./pages/exchange";
import { Exchanges } from "./pages/exchanges";
import { Held } from "./pages/held";
import { LimitsPage } from "./pages/limits";
import { Locks } from "./pages/locks";
import { LogIn } from "./pages/login";
import { OverviewPage } from "./pages/overview";
import { Policies } from "./pages/policies";
import { QueuePage } from "./pages/queue";
import { Queues } from "./pages/queues";
import { Streams } from "./pages/streams";
import { Topology } from "./pages/topology";
import { UserPage } from "./pages/user";
import { Users } from "./pages/users";
import { Vhosts } from "./pages/vhosts";
import { Frame } from "./shell/frame";
import { Boundary } from "./ui/boundary";
import { Failure, Head, Loading } from "./ui/parts";
import { words } from "./words";

const VIEWS: Record<string, ComponentType> = {
  "/": OverviewPage,
  "/queues": Queues,
  "/queue": QueuePage,
  "/streams": Streams,
  "/dead-letters": DeadLetters,
  "/held": Held,
  "/exchanges": Exchanges,
  "/exchange": ExchangePage,
  "/topology": Topology,
  "/connections": Connections,
  "/connection": ConnectionPage,
  "/channels": Channels,
  "/consumers": Consumers,
  "/locks": Locks,
  "/companions": Companions,
  "/cluster": Cluster,
  "/users": Users,
  "/user": UserPage,
  "/vhosts": Vhosts,
  "/policies": Policies,
  "/limits": LimitsPage,
  "/audit": Audit,
};

const trouble = signal<unknown>(undefined);

async function begin(): Promise<void> {
  try {
    await useBrought();
    if (!session.peek()) await recall();
    trouble.value = undefined;
  } catch (error) {
    trouble.value = error;
  }
}

export function App() {
  useEffect(() => void begin(), []);
  const who = standing.value;
  useEffect(() => {
    if (who === "nobody") forget();
  }, [who]);
  if (who === "unknown") {
    return trouble.value === undefined ? (
      <Loading />
    ) : (
      <Failure error={words.errors.noAnswer} reload={() => void begin()} />
    );
  }
  if (who === "nobody") return <LogIn />;
  return (
    <Frame>
      <Shown />
    </Frame>
  );
}

function Shown() {
  const { path } = place.value;
  const View = VIEWS[path];
  if (!View) return <Nothing title={words.notThere.title} text={words.notThere.text} />;
  const isAllowed = allowedPages.value.some((page) => page.path === parentOf(path));
  if (!isAllowed) return <Nothing title={words.notAllowed.title} text={words.notAllowed.text} />;
  return (
    <Boundary key={path}>
      <View />
    </Boundary>
  );
}

function Nothing({ title, text }: { title: string; text: string }) {
  return (
    <>
      <Head title={title} />
      <p>{text}</p>
    </>
  );
}
