// Who one is. The only module that knows how a request is authenticated: a cookie that scripts cannot read says who
// asks, and a header that no other site can send says that the console asks.

import { computed, signal } from "@preact/signals";
import { type Permissions, reads } from "./rights";
import { roleOf } from "./role";

const PATH = "/api/millrace/session";

export interface Session {
  user: string;
  tags: string[];
  csrf: string;
  /** Of a user with a password. */
  permissions?: Permissions;
}

/** `unknown`: not asked yet. */
export type Standing = "unknown" | "nobody" | Session;

export const standing = signal<Standing>("unknown");

export const session = computed(() =>
  typeof standing.value === "string" ? undefined : standing.value,
);

export const role = computed(() => roleOf(session.value?.tags ?? []));

/** Whether one may purge a queue, and undo that. */
export function mayPurge(vhost: string, name: string): boolean {
  return role.value.changes && reads(session.value?.permissions, vhost, name);
}

/** Headers of a request that changes something. */
export function guarded(): Record<string, string> {
  const csrf = session.peek()?.csrf;
  return csrf === undefined ? {} : { "x-millrace-csrf": csrf };
}

function lost(): void {
  standing.value = "nobody";
}

/** The same session stays the same object: whoever watches it is not told of what has not changed. */
export async function take(answer: Response): Promise<void> {
  const told = (await answer.json()) as Session;
  if (JSON.stringify(told) !== JSON.stringify(standing.peek())) standing.value = told;
}

/** Asks who one is. Throws if nobody answers. */
export async function recall(): Promise<void> {
  const answer = await fetch(PATH);
  if (answer.ok) await take(answer);
  else lost();
}

/** Logs in. Answers with the HTTP status: 200 if it worked. */
export async function logIn(username: string, password: string): Promise<number> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(PATH, {
    method: "POST",
    headers,
    body: JSON.stringify({ username, password }),
  });
  if (answer.ok) await take(answer);
  return answer.status;
}

export async function logOut(): Promise<void> {
  await fetch(PATH, { method: "DELETE", headers: guarded() });
  lost();
}
