// Where each thing of a vhost stands in the picture, and which arrows go between them: exchanges to the left, what they
// lead to to the right of them.

import type { Binding, Exchange, Queue } from "../../types";

export type ArrowKind = "binding" | "dead letter" | "subscription" | "alternate";

export interface Box {
  id: string;
  name: string;
  kind: "exchange" | "queue";
  type: string;
  column: number;
  row: number;
}

export interface Arrow {
  from: string;
  to: string;
  kind: ArrowKind;
  text: string;
}

export interface Picture {
  boxes: Box[];
  arrows: Arrow[];
  columns: number;
  rows: number;
}

export type Shown = Pick<Queue, "name" | "type" | "arguments" | "effective_policy_definition">;

export const exchangeId = (name: string): string => `e ${name}`;
export const queueId = (name: string): string => `q ${name}`;

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** A setting of a queue, as it was declared or as a policy says. */
function setting(queue: Shown, name: string): string | undefined {
  return text(queue.arguments[`x-${name}`]) ?? text(queue.effective_policy_definition[name]);
}

function arrowsOf(
  exchanges: readonly Exchange[],
  queues: readonly Shown[],
  bindings: readonly Binding[],
): Arrow[] {
  const later: Arrow[] = [];
  // Several bindings between two ends are one arrow with several keys.
  const bound = new Map<string, Arrow>();
  for (const it of bindings) {
    if (it.source === "") continue;
    const to =
      it.destination_type === "queue" ? queueId(it.destination) : exchangeId(it.destination);
    const from = exchangeId(it.source);
    const before = bound.get(`${from}\u0000${to}`);
    if (before) before.text = `${before.text}, ${it.routing_key}`;
    else bound.set(`${from}\u0000${to}`, { from, to, kind: "binding", text: it.routing_key });
  }
  for (const queue of queues) {
    const [from, exchange] = [queueId(queue.name), setting(queue, "dead-letter-exchange")];
    const key = setting(queue, "dead-letter-routing-key");
    if (exchange === "" && key !== undefined)
      later.push({ from, to: queueId(key), kind: "dead letter", text: "" });
    if (exchange)
      later.push({ from, to: exchangeId(exchange), kind: "dead letter", text: key ?? "" });
    const stream = text(queue.arguments["x-stream"]);
    if (stream !== undefined)
      later.push({ from: queueId(stream), to: from, kind: "subscription", text: "" });
  }
  for (const exchange of exchanges) {
    const to = text(exchange.arguments["alternate-exchange"]);
    if (to)
      later.push({
        from: exchangeId(exchange.name),
        to: exchangeId(to),
        kind: "alternate",
        text: "",
      });
  }
  // Bindings say where a thing stands; what leads back to them, such as dead letters, comes after.
  return [...bound.values(), ...later];
}

/** Whether one gets along the arrows from the one to the other. */
function leads(from: string, to: string, arrows: readonly Arrow[]): boolean {
  const [seen, open] = [new Set<string>(), [from]];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    if (at === to) return true;
    if (seen.has(at)) continue;
    seen.add(at);
    for (const arrow of arrows) if (arrow.from === at) open.push(arrow.to);
  }
  return false;
}

/** The column of each box: to the right of all that lead to it, but for arrows that close a circle. */
function columnsOf(ids: readonly string[], arrows: readonly Arrow[]): Map<string, number> {
  const forward: Arrow[] = [];
  for (const arrow of arrows) if (!leads(arrow.to, arrow.from, forward)) forward.push(arrow);
  const columns = new Map(ids.map((id) => [id, 0]));
  for (let isMoved = true; isMoved;) {
    isMoved = false;
    for (const { from, to } of forward) {
      const column = (columns.get(from) ?? 0) + 1;
      if (column <= (columns.get(to) ?? 0)) continue;
      columns.set(to, column);
      isMoved = true;
    }
  }
  return columns;
}

/** Things that no arrow touches are left out: the default exchange leads to every queue, and says nothing. */
export function layout(
  exchanges: readonly Exchange[],
  queues: readonly Shown[],
  bindings: readonly Binding[],
  boxesMax: number,
): Picture {
  const arrows = arrowsOf(exchanges, queues, bindings);
  const touched = new Set(arrows.flatMap(({ from, to }) => [from, to]));
  const made = [
    ...exchanges.map(({ name, type }) => ({
      id: exchangeId(name),
      name,
      kind: "exchange" as const,
      type,
    })),
    ...queues.map(({ name, type }) => ({ id: queueId(name), name, kind: "queue" as const, type })),
  ];
  const all = made.filter(({ id }) => touched.has(id)).slice(0, boxesMax);
  const ids = new Set(all.map(({ id }) => id));
  const inside = arrows.filter(({ from, to }) => ids.has(from) && ids.has(to));
  const columns = columnsOf([...ids], inside);
  const filled: number[] = [];
  const boxes = all.map((it): Box => {
    // Queues that only dead letters reach stand beside the other queues.
    const column =
      it.kind === "queue" ? Math.max(1, columns.get(it.id) ?? 0) : (columns.get(it.id) ?? 0);
    const row = filled[column] ?? 0;
    filled[column] = row + 1;
    return { ...it, column, row };
  });
  return {
    boxes,
    arrows: inside,
    columns: filled.length,
    rows: Math.max(0, ...filled.map((count) => count ?? 0)),
  };
}
