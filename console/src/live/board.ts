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
  /** The leader does not answer: the numbers are the last that it said. */
  isDown: boolean;
  /** How many messages there were, the oldest number first. */
  trend: number[];
}

export interface QueuesEvent {
  new?: [number, string, string][];
  changed?: number[][];
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

export const messagesOf = (row: QueueRow): number => row.ready + row.unacked;

/** A queue of one vhost, as a text that no other queue has. */
export const keyOf = (vhost: string, name: string): string => `${vhost}\u0000${name}`;

export class Board {
  readonly rows = new Map<number, QueueRow>();
  private readonly ids = new Map<string, number>();
  private readonly places: [number, Told][];

  /** `columns`: what the numbers of a row are. Those that the console does not know are passed over. */
  constructor(columns: string[]) {
    const known = Object.entries(COLUMNS);
    this.places = known.map(([name, field]): [number, Told] => [columns.indexOf(name), field]);
    this.places = this.places.filter(([place]) => place >= 0);
  }

  find(vhost: string, name: string): QueueRow | undefined {
    const id = this.ids.get(keyOf(vhost, name));
    return id === undefined ? undefined : this.rows.get(id);
  }

  apply(event: QueuesEvent): void {
    for (const [id, vhost, name] of event.new ?? []) this.add(id, vhost, name);
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

  private add(id: number, vhost: string, name: string): void {
    const numbers = {
      ready: 0,
      unacked: 0,
      consumers: 0,
      delayed: 0,
      leaving: 0,
      inRate: 0,
      outRate: 0,
    };
    this.rows.set(id, { id, vhost, name, ...numbers, isDown: false, trend: [] });
    this.ids.set(keyOf(vhost, name), id);
  }

  private set(numbers: number[]): void {
    const row = this.rows.get(numbers[0] ?? -1);
    // The snapshot will have it.
    if (!row) return;
    for (const [place, field] of this.places) row[field] = numbers[place] ?? 0;
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
