// What a page asks the node, again and again while somebody looks at it. An answer is kept by its path, so that a page
// which was open before shows at once what it knew, and then what is new. Several parts of a page that ask for the same
// path share the answer.

import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Refused, ask } from "./api";
import { isVisible } from "./visible";

export interface Told<Answer> {
  data: Answer | undefined;
  /** Why the last request was refused. What was known before stays. */
  refused: Refused | undefined;
  isLoading: boolean;
  /** When the last answer came, in milliseconds since 1970. */
  toldAt: number | undefined;
}

export interface Query<Answer> extends Told<Answer> {
  reload: () => void;
}

/** What is known of a path. */
interface Kept {
  told: Signal<Told<unknown>>;
  /** The request that is under way. */
  flying: Promise<void> | undefined;
  /** When the last answer came, by the browser's steady clock. */
  atMs: number;
  /** How many requests were begun: only the last one's answer counts. */
  begun: number;
}

const KEPT_MAX = 60;

/** An answer that is younger is not asked for again. */
const FRESH_MS = 1_000;

/** What is asked for in no shorter time is asked for seldom. */
const SELDOM_MS = 120_000;

const kept = new Map<string, Kept>();

function entry(to: string): Kept {
  const found = kept.get(to) ?? {
    told: signal<Told<unknown>>({
      data: undefined,
      refused: undefined,
      isLoading: true,
      toldAt: undefined,
    }),
    flying: undefined,
    atMs: -Infinity,
    begun: 0,
  };
  // The one that was used last is the last in the map.
  kept.delete(to);
  kept.set(to, found);
  for (const oldest of kept.keys()) {
    if (kept.size <= KEPT_MAX) break;
    kept.delete(oldest);
  }
  return found;
}

/** Somebody else logs in: what was told to the one before is forgotten. */
export function forget(): void {
  kept.clear();
}

/** Moves when somebody has changed something. */
const generation = signal(0);

/** Whatever was changed may be in any answer: what is shown is asked for again. */
export function stale(): void {
  for (const known of kept.values()) {
    known.atMs = -Infinity;
    // Its answer may be from before the change.
    known.flying = undefined;
  }
  generation.value += 1;
}

async function load(to: string, into: Kept): Promise<void> {
  into.begun += 1;
  const mine = into.begun;
  const next: Told<unknown> = { ...into.told.peek(), refused: undefined, isLoading: false };
  try {
    next.data = await ask<unknown>(to);
    next.toldAt = Date.now();
  } catch (error) {
    next.refused = error instanceof Refused ? error : new Refused(0, String(error));
  }
  if (mine !== into.begun) return;
  into.told.value = next;
  into.atMs = performance.now();
  into.flying = undefined;
}

/** Asks, unless somebody else does or just did. */
function loadOnce(to: string, into: Kept, youngerMs: number): Promise<void> {
  if (into.flying) return into.flying;
  if (performance.now() - into.atMs < youngerMs) return Promise.resolve();
  into.flying = load(to, into);
  return into.flying;
}

/** Asks for a path, and again every so many milliseconds while the tab is visible. `undefined`: does not ask. */
export function useQuery<Answer>(to: string | undefined, everyMs = 0): Query<Answer> {
  const known = useMemo(() => entry(to ?? ""), [to]);
  const round = generation.value;
  const visible = isVisible.value;
  useEffect(() => {
    if (to === undefined || !visible) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const turn = async (youngerMs: number) => {
      await loadOnce(to, known, youngerMs);
      if (everyMs > 0 && !isOver) timer = setTimeout(() => void turn(everyMs / 2), everyMs);
    };
    // What is asked for seldom is much work for the node: a look at another page is no reason to ask again.
    void turn(everyMs >= SELDOM_MS ? everyMs / 2 : FRESH_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [to, everyMs, round, visible]);
  const told = known.told.value as Told<Answer>;
  const reload = () => {
    if (to !== undefined) void loadOnce(to, known, 0);
  };
  return { ...told, isLoading: to !== undefined && told.isLoading, reload };
}
