// The one stream of what changes. It is open while somebody is logged in and looks at the tab.

import { effect, signal } from "@preact/signals";
import { Refused, reasonOf } from "../core/api";
import type { Query } from "../core/query";
import { recall, session } from "../core/session";
import { isVisible } from "../core/visible";
import { Board, type QueuesEvent } from "./board";
import { after, type OverviewEvent, type Totals } from "./totals";
import type { LiveNode, Problems } from "../types";

const PATH = "/api/millrace/live";
const AGAIN_MS = 2_000;

export type State = "connecting" | "live" | "broken";

export const state = signal<State>("connecting");

/** All queues were told once: before that, none in the list does not mean that there is none. */
export const isTold = signal(false);

/** Why the stream does not open. */
const refused = signal<Refused | undefined>(undefined);

export const totals = signal<Totals | undefined>(undefined);
export const nodes = signal<LiveNode[]>([]);

/** What is wrong, as the stream tells it. `undefined`: it has not said. */
export const problems = signal<Problems | undefined>(undefined);

/** What is known of queues. The board is one object for long: read `turn` to hear of changes. */
let board = new Board([]);
export const turn = signal(0);

export function queues(): Board {
  void turn.value;
  return board;
}

/** All queues, or why they are not known, in the form of an answer to a request. */
export function queuesQuery(): Query<Board> {
  const data = isTold.value ? queues() : undefined;
  return {
    data,
    refused: refused.value,
    isLoading: data === undefined,
    toldAt: undefined,
    reload: again,
  };
}

function parsed<Data>(event: Event): Data {
  return JSON.parse((event as MessageEvent<string>).data) as Data;
}

function open(): EventSource {
  const source = new EventSource(PATH);
  let next: Board | undefined;
  const on = (name: string, take: (event: Event) => void) => source.addEventListener(name, take);
  on("begin", (event) => {
    next = new Board(parsed<{ columns: string[] }>(event).columns);
  });
  on("queues", (event) => {
    const told = parsed<QueuesEvent>(event);
    (next ?? board).apply(told);
  });
  on("complete", () => {
    if (!next) return;
    next.inherit(board);
    [board, next] = [next, undefined];
    state.value = "live";
    refused.value = undefined;
    isTold.value = true;
    turn.value += 1;
  });
  on("overview", (event) => {
    totals.value = after(totals.peek(), parsed<OverviewEvent>(event), performance.now());
    board.tick();
    turn.value += 1;
  });
  on("nodes", (event) => {
    nodes.value = parsed<{ nodes: LiveNode[] }>(event).nodes;
  });
  on("problems", (event) => {
    problems.value = parsed<Problems>(event);
  });
  return source;
}

/** Forgets what was told to somebody else. */
function clear(): void {
  board = new Board([]);
  isTold.value = false;
  refused.value = undefined;
  totals.value = undefined;
  nodes.value = [];
  problems.value = undefined;
  // Read without a dependency: the effect that clears must not run again for it.
  turn.value = turn.peek() + 1;
}

/** An event source does not say why it failed: the same path, asked once more, does. */
async function reason(): Promise<Refused | undefined> {
  const asking = new AbortController();
  try {
    const answer = await fetch(PATH, { signal: asking.signal });
    return answer.ok ? undefined : new Refused(answer.status, await reasonOf(answer));
  } catch {
    return new Refused(0, "");
  } finally {
    asking.abort();
  }
}

/** Moves when the stream is to be opened again. */
const attempt = signal(0);

const again = (): void => {
  attempt.value += 1;
};

export function startStream(): void {
  effect(() => {
    if (session.value === undefined) {
      clear();
      return undefined;
    }
    if (!isVisible.value) return undefined;
    void attempt.value;
    let timer: ReturnType<typeof setTimeout> | undefined;
    // What came while nobody looked would look like one great burst.
    totals.value = undefined;
    state.value = "connecting";
    const source = open();
    // If nobody is logged in any more, the session is over, and with it this effect.
    const retry = (meanwhile: State) => {
      state.value = meanwhile;
      // They are asked for while the stream tells of none.
      problems.value = undefined;
      source.close();
      clearTimeout(timer);
      timer = setTimeout(() => void recall().then(again, () => retry("broken")), AGAIN_MS);
    };
    source.onerror = () => {
      retry("broken");
      void reason().then((it) => (refused.value = it));
    };
    source.addEventListener("end", () => retry("connecting"));
    return () => {
      clearTimeout(timer);
      source.close();
    };
  });
}
