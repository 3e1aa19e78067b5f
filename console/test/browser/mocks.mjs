// Answers that a node gives seldom, or only with clients: put in its place before a page is opened.

import { VHOST } from "./pages.mjs";

const NAME = "127.0.0.1:40000 -> 127.0.0.1:5672";

const connection = {
  name: NAME,
  user_provided_name: "order-worker-with-a-rather-long-name-3",
  user: "guest",
  vhost: VHOST,
  node: "millrace@1",
  state: "running",
  ssl: false,
  peer_host: "127.0.0.1",
  peer_port: 40000,
  protocol: "AMQP 0-9-1",
  channels: 1,
  connected_at: Date.now() - 90_000,
  client_properties: { product: "pika", connection_name: "order-worker-3" },
  send_pend: 0,
  millrace: { id: "1-17", consumers: 1 },
};

const channel = {
  name: `${NAME} (1)`,
  number: 1,
  user: "guest",
  vhost: VHOST,
  node: "millrace@1",
  state: "running",
  confirm: true,
  transactional: false,
  prefetch_count: 20,
  consumer_count: 1,
  messages_unacknowledged: 7,
  messages_unconfirmed: 0,
  acks_uncommitted: 0,
  connection_details: { name: NAME, peer_host: "127.0.0.1" },
};

const consumer = {
  consumer_tag: "worker",
  ack_required: true,
  prefetch_count: 20,
  queue: { name: "orders", vhost: VHOST },
  channel_details: {
    connection_name: NAME,
    name: channel.name,
    node: "millrace@1",
    number: 1,
    peer_host: "127.0.0.1",
    user: "guest",
  },
  millrace: { held: 7, credit: 13 },
};

const json = (route, body, status = 200) =>
  route.fulfill({ status, contentType: "application/json", body: JSON.stringify(body) });

/** Clients, which a test without AMQP does not have. All else is the node's. */
export async function withClients(page) {
  await page.route(/\/api\/(vhosts\/[^/]+\/)?connections(\?|$)/, (route) =>
    json(route, [connection]),
  );
  await page.route(/\/api\/connections\/[^/]+$/, (route) => json(route, connection));
  await page.route(/\/api\/connections\/[^/]+\/channels$/, (route) => json(route, [channel]));
  await page.route(/\/api\/(vhosts\/[^/]+\/)?channels(\?|$)/, (route) => json(route, [channel]));
  await page.route(/\/api\/consumers/, (route) => json(route, [consumer]));
}

const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

const COLUMNS = [
  "id",
  "messages_ready",
  "messages_unacknowledged",
  "consumers",
  "delayed",
  "leaving",
  "publish",
  "ack",
  "publish_rate",
  "ack_rate",
];

function live(queues) {
  const rows = Array.from({ length: queues }, (_, id) => [
    id,
    (id * 7919) % 10_007,
    id % 5,
    id % 3,
    0,
    0,
    id,
    id,
    id % 90,
    id % 80,
  ]);
  const named = rows.map(([id]) => [id, "/", `queue-${id}`]);
  const overview = {
    alarms: [],
    churn_rates: {},
    message_stats: {},
    object_totals: { connections: 0, channels: 0, consumers: 0 },
  };
  return [
    event("begin", { at: 1, columns: COLUMNS }),
    event("queues", { at: 1, new: named, changed: rows }),
    event("complete", { at: 1 }),
    event("overview", overview),
  ].join("");
}

/** A live stream that tells so many queues. */
export async function withQueues(page, count) {
  const body = live(count);
  await page.route("**/api/millrace/live", (route) =>
    route.fulfill({ status: 200, contentType: "text/event-stream", body }),
  );
  await page.route(/\/api\/queues\?/, (route) => json(route, []));
}

/** A broker in which there is nothing: each list is empty. */
export async function withNothing(page) {
  const lists = "queues|exchanges|bindings|policies|operator-policies|consumers|millrace/locks";
  const whole =
    "connections|channels|vhost-limits|users|permissions|millrace/(retries|dead-letter-queues)";
  const isList = new RegExp(`/api/((${lists})(/[^/?]+)?|${whole})(\\?.*)?$`);
  await page.route(isList, (route) =>
    route.request().method() === "GET" ? json(route, []) : route.fallback(),
  );
  await page.route("**/api/millrace/audit*", (route) =>
    json(route, { items: [], page: 1, page_count: 0, filtered_count: 0, total_count: 0 }),
  );
  await page.route("**/messages*", (route) => json(route, { items: [], next: null }));
  await page.route("**/api/millrace/problems", (route) =>
    json(route, { verdict: "ok", problems: [], left_out: 0, silent: [] }),
  );
  await withQueues(page, 0);
}

/** A node that answers nothing but who is logged in. */
export async function withErrors(page) {
  await page.route("**/api/**", (route) =>
    route.request().url().endsWith("/api/millrace/session")
      ? route.fallback()
      : json(route, { error: "unavailable", reason: "the leader is busy: ask again" }, 503),
  );
}

/** Problems of each kind, to see how they look. */
export async function withProblems(page) {
  const problem = (severity, name) => ({
    kind: "queue_without_consumers",
    severity,
    since: Date.now() - 720_000,
    object: { queue: { vhost: VHOST, name } },
    what: `nobody consumes from ${name} of vhost ${VHOST}: 40213 messages wait, for 12 min`,
    remedy: "start its consumers; or bound it by a policy, or empty it",
    seen_by: ["millrace@1"],
  });
  const problems = [problem("warning", "orders"), problem("critical", "short")];
  await page.route("**/api/millrace/problems", (route) =>
    json(route, { verdict: "critical", problems, left_out: 3, silent: ["millrace@2"] }),
  );
}
