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
  recv_oct: 48_211_023,
  recv_oct_details: { rate: 1_310_720.5 },
  send_oct: 91_204,
  send_oct_details: { rate: 812 },
  message_stats: {
    publish: 40_213,
    publish_details: { rate: 1_204.5 },
    deliver_get: 12,
    deliver_get_details: { rate: 0.3 },
    ack: 10,
    ack_details: { rate: 0.2 },
  },
  blocked_by: "queue",
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
  oldest_held_at: Date.now() - 500_000,
  partitions: [0, 3],
  message_stats: {
    deliver: 40_213,
    deliver_details: { rate: 1_204.5 },
    ack: 40_206,
    ack_details: { rate: 1_203 },
  },
  millrace: {
    held: 7,
    credit: 13,
    paused: true,
    paused_by: "ann",
    paused_at: Date.now() - 60_000,
  },
};

const relay = {
  is_ready: true,
  problem: null,
  is_standby: false,
  confirmed: 1_204_331,
  confirmed_bytes: 301_082_750,
  failed: { unroutable: 12, nacked: 0 },
  dead: { unroutable: 3 },
  backlog_rows: 40_213,
  oldest_age_s: 845.2,
  parked_rows: 9,
  dead_rows: 3,
  slot_lag_bytes: 0,
  last_failure: "row 7 of key `ann`: no queue for 'paid' (unroutable): declare the queue",
};

const pipeline = {
  name: "mail",
  source: "jobs",
  target: "hook",
  taken: 90_213,
  outcomes: { done: 89_998, retry: 204, throttle: 11 },
  settled: { done: 89_998, later: 204, dead: 2, returned: 0 },
  lost: 0,
  running: 8,
  in_hand: 64,
  oldest_s: 1.4,
  away: null,
  is_paused: false,
  paused_by: null,
  paused_at: null,
};

const target = {
  name: "hook",
  kind: "webhook",
  outcomes: { done: 89_998, retry: 204, throttle: 11 },
  running: 8,
  breaker: null,
  throttle: "HTTP 429 from hooks.example.com, for another 12 s",
  stopped: null,
  errors: [{ why: "HTTP 503 from hooks.example.com for #", count: 201 }],
};

const worker = {
  version: "0.1.0",
  pid: 17,
  uptime_s: 90_000,
  is_ready: false,
  problem: "pipeline push: its source pushes is away: connection refused",
  pipelines: [
    { ...pipeline, is_paused: true, paused_by: "ann", paused_at: Date.now() - 400_000 },
    { ...pipeline, name: "push", source: "pushes", away: "connection refused", in_hand: 0 },
  ],
  targets: [target, { ...target, name: "apns", kind: "apns", throttle: null, errors: [] }],
};

const asked = { node: "millrace@1", at: Date.now(), error: null };

const companions = [
  { ...asked, address: "127.0.0.1:9187", kind: "relay", status: relay },
  { ...asked, address: "127.0.0.1:9190", kind: "worker", status: worker },
  {
    ...asked,
    address: "10.0.0.7:9190",
    kind: null,
    status: null,
    error: "10.0.0.7:9190 does not answer: connection refused",
  },
];

const dead = {
  vhost: VHOST,
  queue: "orders.dead",
  reason: "rejected",
  died_in: "orders",
  messages: 40_213,
  oldest_at: Date.now() - 90_000_000,
  newest_at: Date.now() - 60_000,
};

const everywhere = {
  groups: [dead, { ...dead, reason: "expired", died_in: "short", messages: 5, oldest_at: null }],
  complete: false,
};

const groups = [0, 1, 2, 3].map((group) => ({
  group,
  replicas: [
    { node: "millrace@1", matched: 90, behind: 0 },
    { node: "millrace@2", matched: 90, behind: group === 2 ? 1_204 : 0 },
    { node: "millrace@3", matched: null, behind: null },
  ],
}));

const disk = {
  path: "/var/lib/millrace",
  total: 500_000_000_000,
  free: 412_000_000_000,
  parts: [
    { name: "log", bytes: 2_147_483_648, files: 32 },
    { name: "segments/3", bytes: 9_663_676_416, files: 144 },
    { name: "checkpoints", bytes: 81_920, files: 20 },
    { name: "others", bytes: 8_192, files: 4 },
  ],
};

const assignment = {
  partitions: [
    { partition: 0, consumer: "1-17", since: Date.now() - 60_000 },
    { partition: 1, consumer: null },
  ],
  consumers: [{ connection: "1-17", partitions: [0] }],
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
  await page.route("**/api/millrace/dead-letters", (route) => json(route, everywhere));
  await page.route("**/api/millrace/groups", (route) => json(route, groups));
  await page.route("**/api/millrace/nodes/*/disk", (route) => json(route, disk));
  await page.route(/\/api\/millrace\/locks\/[^/]+\/[^/?]+$/, async (route) => {
    const told = await (await route.fetch()).json();
    const since = Date.now() - 75_000;
    await json(route, { ...told, waiting: [{ owner: "host-2", since }], waiting_count: 3 });
  });
  await page.route("**/log.reader/assignment", (route) => json(route, assignment));
  await page.route("**/api/nodes", async (route) => {
    const all = await (await route.fetch()).json();
    await json(
      route,
      all.map((node) => ({ ...node, zone: "eu-central-1a" })),
    );
  });
  await page.route(/\/api\/millrace\/companions/, (route) => json(route, companions));
  await page.route(/\/api\/millrace\/held/, (route) =>
    json(route, [consumer, { ...consumer, consumer_tag: "new", oldest_held_at: null }]),
  );
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
    "connections|channels|vhost-limits|users|permissions|millrace/(held|retries|dead-letter-queues|companions)";
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

/** Problems that the stream tells in place of the node's. For pages that are opened from then on. */
export async function tellProblems(page, told) {
  await page.addInitScript((data) => {
    const add = EventSource.prototype.addEventListener;
    EventSource.prototype.addEventListener = function (name, take, ...rest) {
      if (name !== "problems") return add.call(this, name, take, ...rest);
      setTimeout(() => take(new MessageEvent(name, { data })));
      return undefined;
    };
  }, JSON.stringify(told));
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
  await tellProblems(page, { verdict: "critical", problems, left_out: 3, silent: ["millrace@2"] });
}

/** What happened in the time of the charts, besides what has: a broker of one node has no other leader. */
export async function withMarks(page) {
  await page.route("**/api/millrace/history**", async (route) => {
    const answer = await route.fetch();
    const told = await answer.json();
    const leader = (group, at) => ({
      at: Date.now() - at,
      kind: "leader",
      group,
      term: 7,
      from: "millrace@1",
      to: "millrace@2",
      queues: [{ vhost: VHOST, name: "orders" }],
      queue_count: 14,
    });
    const start = { at: Date.now() - 1_500_000, kind: "start", node: "millrace@1" };
    const marks = [leader(3, 1_521_000), leader(0, 1_520_000), start, ...told.marks];
    await json(route, { ...told, marks });
  });
}

/** A cluster of two nodes, whose second one has six groups to give away. */
export async function withNodes(page) {
  const two = ["millrace@1", "millrace@2"];
  await page.route("**/api/nodes", async (route) => {
    const [node] = await (await route.fetch()).json();
    await json(
      route,
      two.map((name) => ({ ...node, name })),
    );
  });
  const moves = [0, 3, 7, 11, 15, 19].map((group) => ({
    group,
    nodes: [...two].reverse(),
    nodes_then: two,
  }));
  await page.route("**/api/millrace/nodes/millrace%402/**", async (route) => {
    const { dry_run: isDry, by } = JSON.parse(route.request().postData());
    if (by !== undefined && by < 4) {
      const refused = { error: "bad_request", reason: `node ${by} cannot: take another number` };
      return route.fulfill({ status: 400, json: refused });
    }
    const said =
      by === undefined
        ? "6 group(s) move away from node 2."
        : `Node ${by} may join. Start it with an empty data directory: millrace serve --node-id ${by}`;
    return json(route, isDry ? { moves } : { said, steps: [] });
  });
}

/** An identity server that sends browsers back at once. What they bring is noted, and let in by no node. */
export async function withIdentity(page, base) {
  const sent = Object.assign([], { brings: "code=c0de" });
  await page.route("**/api/millrace/session/oauth", (route) =>
    route.request().method() === "GET"
      ? json(route, { host: "id.example" })
      : json(route, { place: `${base}/?${sent.brings}&state=s7ate` }),
  );
  await page.route("**/api/millrace/session", (route) => {
    if (route.request().method() !== "POST") return route.continue();
    sent.push(JSON.parse(route.request().postData()));
    return route.fulfill({ status: 401, json: { error: "not_authorised" } });
  });
  return sent;
}

/** A retry that is over at once. What was asked for is noted. */
export async function withRetry(page) {
  const sent = [];
  await page.route("**/orders.dead/retry", (route) => {
    const body = JSON.parse(route.request().postData());
    sent.push(body);
    return json(route, {
      id: "1-1",
      vhost: VHOST,
      queue: "orders.dead",
      user: "guest",
      dry_run: body.dry_run,
      state: "done",
      seen: 1,
      matched: 1,
      sent: 1,
      gone: 0,
      stay: 0,
      stay_reasons: [],
      targets: [{ exchange: "", routing_key: "short", count: 1 }],
      other_targets: 0,
      waits_for: null,
      rate: null,
    });
  });
  return sent;
}
