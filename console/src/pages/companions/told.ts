// What relays, inboxes and workers say of themselves, as the node passes it on.

/** A relay, an inbox or a worker beside the broker, as a node has asked it. */
export type Companion = {
  /** The node that was told of it. */
  node: string;
  address: string;
  /** When it was asked, milliseconds since 1970. */
  at: number;
  /** Why it has said nothing. */
  error: string | null;
} & (
  | { kind: "relay"; status: RelayStatus }
  | { kind: "inbox"; status: InboxStatus }
  | { kind: "worker"; status: WorkerStatus }
  | { kind: null; status: null }
);

interface Readiness {
  is_ready: boolean;
  problem: string | null;
}

export interface RelayStatus extends Readiness {
  is_standby: boolean;
  /** Not said by an older relay. */
  is_paused?: boolean;
  confirmed: number;
  confirmed_bytes: number;
  /** Messages by the reason for which they were not taken, and for which they became dead. */
  failed: Record<string, number>;
  dead: Record<string, number>;
  backlog_rows: number;
  oldest_age_s: number;
  parked_rows: number;
  dead_rows: number;
  slot_lag_bytes: number;
  last_failure: string | null;
}

export interface InboxStatus extends Readiness {
  is_standby: boolean;
  stored: number;
  duplicates: number;
  rejected: number;
  unacked: number;
  /** Below 0: not known. */
  queued: number;
}

export interface WorkerStatus extends Readiness {
  /** Not said by an older worker. */
  is_paused?: boolean;
  paused_by?: string | null;
  paused_at?: number | null;
  version: string;
  uptime_s: number;
  pipelines: Pipeline[];
  targets: Target[];
}

export interface Pipeline {
  name: string;
  source: string;
  target: string;
  taken: number;
  /** Attempts by their outcome. */
  outcomes: Record<string, number>;
  /** Jobs by what became of them. */
  settled: Record<string, number>;
  lost: number;
  running: number;
  in_hand: number;
  oldest_s: number;
  away: string | null;
  /** By itself, or with all of the worker. */
  is_paused: boolean;
  /** Who paused it by itself, and when. An older worker does not say it. */
  paused_by?: string | null;
  paused_at?: number | null;
}

export interface Target {
  name: string;
  kind: string;
  outcomes: Record<string, number>;
  running: number;
  breaker: string | null;
  throttle: string | null;
  stopped: string | null;
  errors: { why: string; count: number }[];
}
