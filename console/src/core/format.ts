// Numbers, sizes, times and durations as people read them.

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export const NOTHING = "–";

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NOTHING : GROUPED.format(value);
}

/** A rate a second: small ones with a tenth. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  return Math.abs(value) < 100 ? TENTHS.format(value) : GROUPED.format(value);
}

/** With a sign: `+12.5`, `−3`. */
export function change(value: number): string {
  if (Math.abs(value) < 0.05) return "0";
  return value > 0 ? `+${rate(value)}` : `−${rate(-value)}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  let [size, unit] = [value, 0];
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? GROUPED.format(size) : TENTHS.format(size)} ${UNITS[unit]}`;
}

const SPANS: [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** The two largest units: `2 h 5 min`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  const first = SPANS.findIndex(([, span]) => seconds >= span);
  const parts = [];
  let rest = seconds;
  for (const [unit, span] of SPANS.slice(first, first + 2)) {
    const units = Math.floor(rest / span);
    rest -= units * span;
    if (units > 0) parts.push(`${units} ${unit}`);
  }
  return parts.join(" ");
}

export function ago(atMs: number | null | undefined, nowMs: number): string {
  return atMs === null || atMs === undefined ? NOTHING : duration(Math.max(0, nowMs - atMs));
}

/** The viewer's offset at that moment, as ISO 8601 writes it. */
export function offset(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  const sign = minutes < 0 ? "−" : "+";
  const two = (value: number) => String(Math.floor(Math.abs(value))).padStart(2, "0");
  return `${sign}${two(minutes / 60)}:${two(minutes % 60)}`;
}

/** `2026-11-28 18:03:07 +01:00`: sorts as it reads, and says its zone. */
export function time(atMs: number | null | undefined): string {
  if (atMs === null || atMs === undefined) return NOTHING;
  const at = new Date(atMs);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())} ${offset(at)}`;
}

/** `2026-11-28T18:03:07` in the viewer's zone, as a field for times has it. */
export function field(atMs: number): string {
  return Number.isNaN(atMs) ? "" : time(atMs).split(" ").slice(0, 2).join("T");
}

/** `18:03`, and at midnight the day. */
export function clock(atMs: number): string {
  const [day = "", minute = ""] = time(atMs).split(" ");
  return minute.startsWith("00:00") ? day : minute.slice(0, 5);
}

/** `1 queue`, `1,200 queues`. */
export function counted(value: number, one: string, many: string): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
