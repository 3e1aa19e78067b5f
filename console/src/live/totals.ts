// Rates of the whole, from the counts that the live stream tells each second.

/** How many seconds back the sparklines of the whole go. */
export const TOTALS_LENGTH = 300;

export const COUNTS = [
  "publish",
  "confirm",
  "deliver_get",
  "ack",
  "return_unroutable",
  "drop_unroutable",
] as const;
export type Count = (typeof COUNTS)[number];

export interface OverviewEvent {
  alarms: { node: string; resource: string }[];
  object_totals: { connections?: number; channels?: number; consumers?: number };
  message_stats: Partial<Record<Count, number>>;
  churn_rates?: Record<string, number>;
}

export interface Totals {
  told: OverviewEvent;
  atMs: number;
  rates: Record<Count, number>;
  trends: Record<Count, number[]>;
}

function each<Value>(make: (name: Count) => Value): Record<Count, Value> {
  return Object.fromEntries(COUNTS.map((name) => [name, make(name)])) as Record<Count, Value>;
}

/** What is known after an event. A node that was started again counts from 0: its rate is then said as 0. */
export function after(before: Totals | undefined, told: OverviewEvent, atMs: number): Totals {
  const seconds = before ? (atMs - before.atMs) / 1000 : 0;
  const rates = each((name) => {
    const came = (told.message_stats[name] ?? 0) - (before?.told.message_stats[name] ?? 0);
    return seconds > 0 ? Math.max(0, came / seconds) : 0;
  });
  const trends = each((name) =>
    before ? [...before.trends[name], rates[name]].slice(-TOTALS_LENGTH) : [],
  );
  return { told, atMs, rates, trends };
}
