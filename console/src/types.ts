// Answers of the node's HTTP API, as far as the console reads them. docs/operating/http-api.md says what they mean.

export type Table = Record<string, unknown>;

export interface Overview {
  cluster_name: string;
  node: string;
  product_name: string;
  product_version: string;
  rabbitmq_version: string;
  /** What all nodes have agreed on. */
  cluster_version: number;
  listeners: { ip_address: string; node: string; port: number; protocol: string }[];
  object_totals: {
    queues: number;
    exchanges: number;
    connections: number;
    channels: number;
    consumers: number;
  };
  queue_totals?: { messages: number; messages_ready: number; messages_unacknowledged: number };
}

export interface Problem {
  kind: string;
  severity: "critical" | "warning";
  since: number | null;
  object: {
    queue?: { vhost: string; name: string };
    node?: string;
    group?: number;
    version?: number;
  };
  what: string;
  remedy: string;
  seen_by: string[];
}

export interface Problems {
  verdict: string;
  problems: Problem[];
  left_out: number;
  silent: string[];
}

export interface LiveNode {
  name: string;
  running?: boolean;
  uptime?: number;
  mem_used?: number;
  mem_limit?: number;
  mem_alarm?: boolean;
  disk_free?: number;
  disk_free_limit?: number;
  disk_free_alarm?: boolean;
  sockets_used?: number;
}

export interface Node extends LiveNode {
  processors?: number;
  os_pid?: string;
  zone?: string | null;
}

export interface Partition {
  partition: number;
  group: number;
  leader: string | null;
  /** How it stands: not in lists, and not if its leader does not answer. */
  messages_ready?: number;
  messages_unacknowledged?: number;
  oldest_ready_at?: number | null;
}

/** Where a place in a stream is; `null`: the leader of the partition does not answer. */
export interface Places {
  partitions: { partition: number; offset: number | null; messages: number | null }[];
  messages: number | null;
}

export interface Queue {
  name: string;
  vhost: string;
  type: string;
  durable: boolean;
  auto_delete: boolean;
  exclusive: boolean;
  arguments: Table;
  policy: string | null;
  operator_policy: string | null;
  effective_policy_definition: Table;
  state: string;
  paused: boolean;
  paused_by?: string;
  paused_at?: number;
  node: string | null;
  leader?: string;
  members?: string[];
  messages?: number;
  messages_ready?: number;
  messages_unacknowledged?: number;
  consumers?: number;
  message_bytes_ready?: number | null;
  oldest_ready_at?: number | null;
  partitions?: Partition[];
  rates?: Record<string, unknown>;
  consumer_details?: QueueConsumer[];
  millrace?: Record<string, number | null>;
}

/** A consumer as the leader of its queue knows it. */
export interface QueueConsumer {
  ack_required: boolean;
  exclusive: boolean;
  active: boolean;
  arguments: Table;
  channel_details: { connection_name: string | null };
  millrace: { held: number; credit: number };
}

/** A consumer as its connection knows it. */
export interface Consumer {
  consumer_tag: string;
  ack_required: boolean;
  prefetch_count: number;
  queue: { name: string; vhost: string };
  channel_details: {
    connection_name: string;
    name: string;
    node: string;
    number: number;
    peer_host: string;
    user: string;
  };
  /** Since when it holds its oldest message at least; `null`: for less than a minute, or it holds none. */
  oldest_held_at?: number | null;
  /** Of a queue with partitions: those that serve it. */
  partitions?: number[] | null;
  message_stats?: { deliver: number; deliver_details: Rate; ack: number; ack_details: Rate };
  millrace?: {
    held: number;
    credit: number;
    paused?: boolean;
    paused_by?: string | null;
    paused_at?: number | null;
  };
}

/** How fast a total grows, a second. */
export interface Rate {
  rate: number;
}

/** What publishers of a connection wait for. */
export type BlockedBy = "memory" | "disk" | "in_flight" | "queue" | "log";

export interface Connection {
  name: string;
  user_provided_name?: string;
  user: string;
  vhost: string;
  node: string;
  state: string;
  ssl: boolean;
  peer_host: string;
  peer_port: number;
  protocol: string;
  channels: number;
  connected_at: number;
  client_properties: Table;
  send_pend: number;
  recv_oct?: number;
  recv_oct_details?: Rate;
  send_oct?: number;
  send_oct_details?: Rate;
  message_stats?: {
    publish: number;
    publish_details: Rate;
    deliver_get: number;
    deliver_get_details: Rate;
    ack: number;
    ack_details: Rate;
  };
  blocked_by?: BlockedBy | null;
  millrace?: { id: string; consumers: number };
}

export interface Channel {
  name: string;
  number: number;
  user: string;
  vhost: string;
  node: string;
  state: string;
  confirm: boolean;
  transactional: boolean;
  prefetch_count: number;
  consumer_count: number;
  messages_unacknowledged: number;
  messages_unconfirmed: number;
  acks_uncommitted: number;
  connection_details: { name: string; peer_host: string };
}

export interface Message {
  position: string;
  priority: number;
  state: "ready" | "unacked" | "delayed" | "dead";
  due_at?: number;
  reason?: string;
  holder?: Holder;
  exchange: string;
  routing_key: string;
  properties: Table & { headers?: Table };
  payload: string;
  payload_encoding: "string" | "base64";
  payload_bytes: number;
  truncated: boolean;
  enqueued_at: number | null;
  expires_at: number | null;
  returns: number | null;
  dead_letter_history: Table[];
}

export interface Holder {
  connection: string;
  node: string;
  connection_name?: string;
  user_provided_name?: string;
  user?: string;
  channel?: number;
  consumer_tag?: string;
  /** Since when at least; `null`: for less than a minute. */
  held_since?: number | null;
}

export interface Messages {
  items: Message[];
  next: string | null;
  /** Told where messages of a time were asked for. */
  time_is_exact?: boolean;
}

export interface Series {
  from: number;
  to: number;
  step_ms: number;
  series: Record<string, (number | null)[]>;
  silent: string[];
  /** The oldest first. A node of an older version tells none. */
  marks?: Mark[];
  marks_left_out?: number;
}

/** A group that another node leads from then on. */
export interface LeaderMark {
  at: number;
  kind: "leader";
  group: number;
  term: number;
  from: string;
  to: string;
  /** The first of its queues. */
  queues: { vhost: string; name: string }[];
  queue_count: number;
}

/** What happened. */
export type Mark =
  | LeaderMark
  | { at: number; kind: "start"; node: string }
  | { at: number; kind: "deployment"; text: string; user: string };

export interface Binding {
  source: string;
  vhost: string;
  destination: string;
  destination_type: "queue" | "exchange";
  routing_key: string;
  arguments: Table;
  properties_key: string;
}

export interface Exchange {
  name: string;
  vhost: string;
  type: string;
  durable: boolean;
  auto_delete: boolean;
  internal: boolean;
  arguments: Table;
  policy?: string;
  message_stats?: {
    publish_in: number;
    publish_in_details: Rate;
    publish_out: number;
    publish_out_details: Rate;
  };
}

export interface DeadLettersTo {
  exchange: string;
  is_there: boolean;
  routing_key: string | null;
  queues: string[] | null;
}

export interface Explained {
  is_routed: boolean;
  refused: string | null;
  hops: {
    exchange: string;
    type: string;
    one_of_several: boolean;
    by_chance: boolean;
    bindings: (Pick<Binding, "destination" | "destination_type" | "routing_key" | "arguments"> & {
      matches: boolean;
      is_taken: boolean;
    })[];
    bindings_left_out: number;
    queues: string[];
    alternate_exchange: string | null;
  }[];
  queue_count: number;
  queues: {
    name: string;
    type: string;
    outcome: string;
    is_refused: boolean;
    dead_letters: DeadLettersTo | null;
    messages_ready?: number;
    consumers?: number;
  }[];
}

export interface ExplainedQueue {
  settings: { setting: string; value: unknown; from: string[]; overruled: string[] }[];
  policies: {
    name: string;
    pattern: string;
    priority: number;
    counts: boolean;
    definition: Table;
  }[];
  operator_policies: {
    name: string;
    pattern: string;
    priority: number;
    counts: boolean;
    definition: Table;
  }[];
  dead_letters: DeadLettersTo | null;
}

export interface DeadGroup {
  died_in: string | null;
  reason: string | null;
  count: number;
  first_died_at: number | null;
  last_died_at: number | null;
  retries_max: number;
  first_position: string;
}

export interface DeadLetters {
  groups: DeadGroup[];
  seen: number;
  whole: boolean;
  others: number;
}

export interface Retry {
  id: string;
  node?: string;
  vhost: string;
  queue: string;
  user: string;
  dry_run: boolean;
  state: "running" | "done" | "stopped" | "queue deleted";
  seen: number;
  matched: number;
  sent: number;
  gone: number;
  stay: number;
  stay_reasons: { reason: string; count: number; explanation: string }[];
  targets: { exchange: string; routing_key: string; count: number }[];
  other_targets: number;
  waits_for: string | null;
  rate: number | null;
}

export interface Lock {
  name: string;
  vhost: string;
  held: boolean;
  owner?: string;
  token?: number;
  left_ms?: number;
  version: number;
  value?: string;
  encoding?: string;
  /** The first of those who wait; `null`: nobody says. Not in lists. */
  waiting?: { owner: string; since: number }[] | null;
  waiting_count?: number | null;
}

export interface AuditRecord {
  number: number;
  time: number;
  user: string;
  address: string | null;
  event: string;
  vhost: string;
  object: string;
  details: Table;
}

export interface Page<Item> {
  items: Item[];
  page: number;
  page_count: number;
  filtered_count: number;
  total_count: number;
}

export interface User {
  name: string;
  tags: string[];
  password_hash: string;
  hashing_algorithm: string;
  limits: Record<string, number>;
}

export interface Permission {
  user: string;
  vhost: string;
  configure: string;
  write: string;
  read: string;
}

export interface TopicPermission {
  user: string;
  vhost: string;
  exchange: string;
  write: string;
  read: string;
}

export interface Vhost {
  name: string;
  description?: string;
  tags?: string[];
  default_queue_type?: string;
  tracing: boolean;
}

export interface Policy {
  name: string;
  vhost: string;
  pattern: string;
  "apply-to": string;
  priority: number;
  definition: Table;
}

/** What a policy would change. */
export interface Foreseen {
  queue_count: number;
  change_count: number;
  changes: {
    queue: string;
    policy: { before: string | null; after: string | null };
    definition: { before: Table; after: Table };
  }[];
}

export interface Limits {
  vhost?: string;
  user?: string;
  value: Record<string, number>;
}

/** Which consumer has which partition. Connections are named by their ids. */
export interface Assignment {
  partitions: { partition: number; consumer: string | null; since?: number | null }[];
  consumers: { connection: string | null; partitions: number[] }[];
}
