// Looks through the messages of a queue without touching them, answer by answer, until enough are found.

import { useEffect, useState } from "preact/hooks";
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
  from: string;
  contains: string;
  /** `name` or `name:value`. */
  header: string;
}

export interface Looked {
  items: Message[];
  next: string | null;
  isLooking: boolean;
  answers: number;
  error: unknown;
  more: () => void;
  stop: () => void;
}

/** Whether a message has the header, with this text in its value. */
export function hasHeader(message: Message, header: string): boolean {
  if (header === "") return true;
  const [name = "", ...rest] = header.split(":");
  const headers = message.properties.headers ?? {};
  if (!(name in headers)) return false;
  const value = headers[name];
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.includes(rest.join(":").trim());
}

export function messagesPath(vhost: string, name: string): string {
  return path("queues", vhost, name, "messages");
}

type Known = Pick<Looked, "items" | "next" | "isLooking" | "answers" | "error">;

const BEGIN: Known = { items: [], next: null, isLooking: true, answers: 0, error: undefined };

export function useLooked(sought: Sought, round: number): Looked {
  const [known, setKnown] = useState<Known>(BEGIN);
  const [run, setRun] = useState({ from: sought.from, wanted: PAGE, isOver: false });
  const { vhost, name, state, partition, from, contains, header } = sought;
  const key = JSON.stringify([sought, round]);

  useEffect(() => {
    setKnown(BEGIN);
    setRun({ from, wanted: PAGE, isOver: false });
  }, [key]);

  useEffect(() => {
    let isOver = run.isOver;
    const look = async () => {
      let at: string | null = run.from;
      let found = 0;
      while (at !== null && found < run.wanted && !isOver) {
        const asked = {
          state,
          partition,
          from: at,
          contains,
          count: PAGE,
          truncate: PREVIEW_BYTES,
        };
        const told: Messages = await ask<Messages>(messagesPath(vhost, name), asked);
        if (isOver) return;
        const fit = told.items.filter((message) => hasHeader(message, header));
        found += fit.length;
        at = told.next;
        setKnown((it) => ({
          ...it,
          items: [...it.items, ...fit],
          next: told.next,
          answers: it.answers + 1,
        }));
      }
    };
    const end = (error: unknown) =>
      isOver || setKnown((it) => ({ ...it, isLooking: false, error }));
    if (!isOver) look().then(() => end(undefined), end);
    return () => {
      isOver = true;
    };
  }, [key, run]);

  const more = () => {
    setKnown((it) => ({ ...it, isLooking: true }));
    setRun({ from: known.next ?? "", wanted: PAGE, isOver: false });
  };
  const stop = () => {
    setKnown((it) => ({ ...it, isLooking: false }));
    setRun((it) => ({ ...it, isOver: true }));
  };
  return { ...known, more, stop };
}
