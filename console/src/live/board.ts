// What the live stream has told of queues. A row is changed in place: with 10,000 busy queues a new object for each of
// them each second would keep the collector of garbage busy.

/** How many seconds a sparkline goes back. */
export const TREND_LENGTH = 60;

export interface QueueRow {
  id: number;
  vhost: string;
  name: string;
  ready: number;
  unacked: number;
  consumers: number;
  delayed: number;
  leaving: number;
  inRate: number;
  outRate: number;
  /** Since when the oldest ready message is there at least; `null`: none is ready, or it is not known. */
  oldestAt: number | null;
  /** Of what is ready, where that is counted. */
  bytes: number | null;
  type: string;
  /** `null`: nobody has paused it. */
  pausedBy: string | null;
  /** The leader does not answer: the numbers are the last that it said. */
  isDown: boolean;
  /** How many messages there were, the oldest number first. */
  trend: number[];
}

export interface QueuesEvent {
  /** Id, vhost, name, type, and who paused it: told again when it changes. */
  new?: [number, string, string, string?, (string | null)?][];
  changed?: (number | null)[][];
  down?: number[];
  gone?: number[];
}

/** The columns that a row takes, by the names that the stream gives them. */
const COLUMNS = {
  messages_ready: "ready",
  messages_unacknowledged: "unacked",
  consumers: "consumers",
  delayed: "delayed",
  leaving: "leaving",
  publish_rate: "inRate",
  ack_rate: "outRate",
} as const;

type Told = (typeof COLUMNS)[keyof typeof COLUMNS];

/** Columns that may be `null`. */
const MAYBE = { oldest_ready_at: "oldestAt", ready_bytes: "bytes" } as const;

type Maybe = (typeof MAYBE)[keyof typeof MAYBE];

export const messagesOf = (row: QueueRow): number => row.ready + row.unacked;

/** A queue of one vhost, as a text that no other queue has. */
export const keyOf = (vhost: string, name: string): string => `${vhost}\u0000${name}`;

export class Board {
  readonly rows = new Map<number, QueueRow>();
  private readonly ids = new Map<string, number>();
  private readonly places: [number, Told][];
  private readonly maybe: [number, Maybe][];

  /** `columns`: what the numbers of a row are. Those that the console does not know are passed over. */
  constructor(columns: string[]) {
    const placed = <Field>(fields: Record<string, Field>): [number, Field][] =>
      Object.entries(fields)
        .map(([name, field]): [number, Field] => [columns.indexOf(name), field])
        .filter(([place]) => place >= 0);
    this.places = placed(COLUMNS);
    this.maybe = placed(MAYBE);
  }

  find(vhost: string, name: string): QueueRow | undefined {
    const id = this.ids.get(keyOf(vhost, name));
    return id === undefined ? undefined : this.rows.get(id);
  }

  apply(event: QueuesEvent): void {
    for (const [id, vhost, name, type = "", pausedBy = null] of event.new ?? []) {
      const row = this.rows.get(id) ?? this.add(id, vhost, name);
      row.type = type;
      row.pausedBy = pausedBy;
    }
    for (const numbers of event.changed ?? []) this.set(numbers);
    for (const id of event.down ?? []) {
      const row = this.rows.get(id);
      if (row) row.isDown = true;
    }
    for (const id of event.gone ?? []) this.remove(id);
  }

  /** A second has passed. */
  tick(): void {
    for (const row of this.rows.values()) {
      row.trend.push(messagesOf(row));
      if (row.trend.length > TREND_LENGTH) row.trend.shift();
    }
  }

  /** Goes on with the trends of an older board: the stream was broken and begins again. */
  inherit(older: Board): void {
    for (const row of this.rows.values()) {
      const before = older.find(row.vhost, row.name);
      if (before) row.trend = before.trend;
    }
  }

  private add(id: number, vhost: string, name: string): QueueRow {
    const numbers = {
      ready: 0,
      unacked: 0,
      consumers: 0,
      delayed: 0,
      leaving: 0,
      inRate: 0,
      outRate: 0,
    };
    const told = { type: "", pausedBy: null, oldestAt: null, bytes: null };
    const row = { id, vhost, name, ...numbers, ...told, isDown: false, trend: [] };
    this.rows.set(id, row);
    this.ids.set(keyOf(vhost, name), id);
    return row;
  }

  private set(numbers: (number | null)[]): void {
    const row = this.rows.get(numbers[0] ?? -1);
    // The snapshot will have it.
    if (!row) return;
    for (const [place, field] of this.places) row[field] = numbers[place] ?? 0;
    for (const [place, field] of this.maybe) row[field] = numbers[place] ?? null;
    row.isDown = false;
  }

  private remove(id: number): void {
    const row = this.rows.get(id);
    if (!row) return;
    this.rows.delete(id);
    // A queue of the same name may have been made meanwhile.
    const key = keyOf(row.vhost, row.name);
    if (this.ids.get(key) === id) this.ids.delete(key);
  }
}
