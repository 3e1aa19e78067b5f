// Requests to the node.

import { guarded, recall } from "./session";

/** The node refused, or nobody answered (status 0). */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
  ) {
    super(reason);
  }
}

/**
 * A path below /api, of parts that are quoted: `path("queues", "/", "orders")`. A browser takes a part `.` or `..` out
 * of a path, quoted or not: the node takes such a path in the query.
 */
export function path(...parts: string[]): string {
  const isFolded = parts.some((part) => part === "." || part === "..");
  const quoted = `/${parts.map(encodeURIComponent).join("/")}`;
  return isFolded ? `/millrace/at?${new URLSearchParams({ path: quoted }).toString()}` : quoted;
}

export type Asked = Record<string, string | number | boolean | undefined>;

export function withAsked(to: string, asked: Asked): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) {
    if (value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  if (text === "") return to;
  return to.includes("?") ? `${to}&${text}` : `${to}?${text}`;
}

/** Why the node refused, as it says it. */
export async function reasonOf(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    const told: unknown = JSON.parse(text);
    if (typeof told === "object" && told !== null) {
      const { reason, error } = told as { reason?: unknown; error?: unknown };
      if (typeof reason === "string") return reason;
      if (typeof error === "string") return error;
    }
  } catch {
    // Proxies answer with pages, not with JSON.
  }
  return text.slice(0, 300) || answer.statusText;
}

async function send(
  method: string,
  to: string,
  body: unknown,
  headers: Record<string, string>,
): Promise<Response> {
  const request: RequestInit = { method, headers };
  if (body !== undefined) {
    request.headers = { "content-type": "application/json", ...headers };
    request.body = JSON.stringify(body);
  }
  let answer: Response;
  try {
    answer = await fetch(`/api${to}`, request);
  } catch {
    throw new Refused(0, "");
  }
  if (answer.ok) return answer;
  // The node says 401 of what a user may not do, too: whether the login is over, it has to be asked.
  if (answer.status === 401) void recall().catch(() => undefined);
  throw new Refused(answer.status, await reasonOf(answer));
}

/** Asks. The caller names the type of the answer, as the node's API documents it. */
export async function ask<Answer>(to: string, asked: Asked = {}): Promise<Answer> {
  const answer = await send("GET", withAsked(to, asked), undefined, {});
  return (await answer.json()) as Answer;
}

/** Changes something. An answer without a body is `undefined`. */
export async function change<Answer = undefined>(
  method: "PUT" | "POST" | "DELETE",
  to: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const answer = await send(method, to, body, { ...guarded(), ...headers });
  const text = await answer.text();
  return (text === "" ? undefined : JSON.parse(text)) as Answer;
}
