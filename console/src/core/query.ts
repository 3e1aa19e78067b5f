// What a page asks the node, again and again while somebody looks at it. An answer is kept by its path, so that a page
// which was open before shows at once what it knew, and then what is new.

import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Refused, ask } from "./api";
import { isVisible } from "./visible";

export interface Told<Answer> {
  data: Answer | undefined;
  /** Why the last request was refused. What was known before stays. */
  refused: Refused | undefined;
  isLoading: boolean;
}

export interface Query<Answer> extends Told<Answer> {
  reload: () => void;
}

const KEPT_MAX = 60;

const kept = new Map<string, Signal<Told<unknown>>>();

function entry(to: string): Signal<Told<unknown>> {
  const found =
    kept.get(to) ?? signal<Told<unknown>>({ data: undefined, refused: undefined, isLoading: true });
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

/** Whatever was changed may be in any answer: what is shown is asked for again. */
const generation = signal(0);

export function stale(): void {
  generation.value += 1;
}

async function load(to: string, into: Signal<Told<unknown>>): Promise<void> {
  try {
    const data = await ask<unknown>(to);
    into.value = { data, refused: undefined, isLoading: false };
  } catch (error) {
    const refused = error instanceof Refused ? error : new Refused(0, String(error));
    into.value = { data: into.peek().data, refused, isLoading: false };
  }
}

/** Asks for a path, and again every so many milliseconds while the tab is visible. `undefined`: does not ask. */
export function useQuery<Answer>(to: string | undefined, everyMs = 0): Query<Answer> {
  const slot = useMemo(() => entry(to ?? ""), [to]);
  const round = generation.value;
  const visible = isVisible.value;
  useEffect(() => {
    if (to === undefined || !visible) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const turn = async () => {
      await load(to, slot);
      if (everyMs > 0 && !isOver) timer = setTimeout(turn, everyMs);
    };
    void turn();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [to, everyMs, round, visible]);
  const told = slot.value as Told<Answer>;
  const reload = () => {
    if (to !== undefined) void load(to, slot);
  };
  return { ...told, isLoading: to !== undefined && told.isLoading, reload };
}
