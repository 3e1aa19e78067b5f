// Looks through the messages of a queue without touching them, answer by answer, until enough are found.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, path } from "../../core/api";
import type { Message, Messages } from "../../types";

/** So many are found before somebody asks for more. */
const PAGE = 50;

/** So much of each payload: the message itself shows more. */
const PREVIEW_BYTES = 2_000;

export interface Sought {
  vhost: string;
  name: string;
  state: string;
  partition: string;
  /** A position, or `last`. */
  from: string;
  /** A time as ISO 8601 writes it: only messages that came then or later. */
  since: string;
  contains: string;
  /** `name` or `name:value`. */
  header: string;
}

export interface Looked {
  items: Message[];
  next: string | null;
  isLooking: boolean;
  answers: number;
  /** Messages before the first one may be of the time, too. */
  isRough: boolean;
  error: unknown;
  more: () => void;
  stop: () => void;
}

/** What the node filters by: `name: value` as `name:value`. A name alone the console looks for itself. */
export function askedHeader(header: string): string | undefined {
  const [name = "", ...rest] = header.split(":");
  const value = rest.join(":").trim();
  return value === "" ? undefined : `${name.trim()}:${value}`;
}

/** Whether a message has the header, with this value as the node compares it. */
export function hasHeader(message: Message, header: string): boolean {
  const [name = "", ...rest] = header.split(":");
  if (name === "") return true;
  const headers = message.properties.headers ?? {};
  const value = headers[name.trim()];
  const wanted = rest.join(":").trim();
  if (value === undefined || wanted === "") return value !== undefined;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text === wanted || (typeof value === "number" && value === Number(wanted));
}

export function messagesPath(vhost: string, name: string): string {
  return path("queues", vhost, name, "messages");
}

type Known = Pick<Looked, "items" | "next" | "isLooking" | "answers" | "isRough" | "error">;

const BEGIN: Known = {
  items: [],
  next: null,
  isLooking: true,
  answers: 0,
  isRough: false,
  error: undefined,
};

/** A search that may be stopped, and go on. */
interface Search {
  at: string | null;
  isStopped: boolean;
}

export function useLooked(sought: Sought, round: number): Looked {
  const [known, setKnown] = useState<Known>(BEGIN);
  const search = useRef<Search>({ at: "", isStopped: true });

  const look = async (mine: Search) => {
    const { vhost, name, state, partition, contains, header } = sought;
    const sinceMs = Date.parse(sought.since);
    const asked = {
      state,
      partition,
      contains,
      count: PAGE,
      truncate: PREVIEW_BYTES,
      header: askedHeader(header),
      from_time: Number.isNaN(sinceMs) ? undefined : sinceMs,
    };
    const isOver = () => mine.isStopped || mine !== search.current;
    let error: unknown;
    try {
      for (let found = 0; mine.at !== null && found < PAGE;) {
        const told = await ask<Messages>(messagesPath(vhost, name), { ...asked, from: mine.at });
        if (isOver()) return;
        const fit = told.items.filter((message) => hasHeader(message, header));
        found += fit.length;
        mine.at = told.next;
        setKnown((it) => ({
          ...it,
          items: [...it.items, ...fit],
          next: told.next,
          answers: it.answers + 1,
          isRough: it.isRough || told.time_is_exact === false,
        }));
      }
    } catch (refused) {
      error = refused;
    }
    if (!isOver()) setKnown((it) => ({ ...it, isLooking: false, error }));
  };

  useEffect(() => {
    const mine: Search = { at: sought.from, isStopped: false };
    search.current = mine;
    setKnown(BEGIN);
    void look(mine);
    return () => {
      mine.isStopped = true;
    };
  }, [JSON.stringify(sought), round]);

  const more = () => {
    search.current = { at: search.current.at, isStopped: false };
    setKnown((it) => ({ ...it, isLooking: true }));
    void look(search.current);
  };
  const stop = () => {
    search.current.isStopped = true;
    setKnown((it) => ({ ...it, isLooking: false }));
  };
  return { ...known, more, stop };
}
