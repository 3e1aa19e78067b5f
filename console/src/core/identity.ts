// Login at an identity server: the node says where, and one comes back with a code that only this browser can use.

import { take } from "./session";
import { words } from "../words";

const PATH = "/api/millrace/session";
/** Where one was before one was sent away. */
const WAS = "millrace.was";

/** What somebody brings from the server: a code, or why there is none. */
interface Brought {
  code: string | null;
  state: string;
  error: string | null;
}

let brought: Brought | undefined;

/** Why a login there gave nothing. Empty: nothing is wrong. */
export let fault = "";

const redirect = () => `${location.origin}/`;

const headers = { "content-type": "application/json" };

/** Takes what somebody brings out of the address, and goes back to where one was. Before anything reads the address. */
export function takeBrought(): void {
  const query = new URLSearchParams(location.search);
  const state = query.get("state");
  const was = sessionStorage.getItem(WAS);
  if (state === null || was === null) return;
  sessionStorage.removeItem(WAS);
  brought = { code: query.get("code"), state, error: query.get("error") };
  history.replaceState(null, "", was);
}

/** Logs in with what was brought, if anything. Throws if nobody answers. */
export async function useBrought(): Promise<void> {
  const given = brought;
  brought = undefined;
  if (!given) return;
  if (given.code === null) {
    fault = words.login.refusedThere(given.error ?? "");
    return;
  }
  const body = { code: given.code, state: given.state, redirect_uri: redirect() };
  const answer = await fetch(PATH, { method: "POST", headers, body: JSON.stringify(body) });
  if (answer.ok) await take(answer);
  else fault = words.login.fault(answer.status);
}

/** The host of the identity server, if there is one. */
export async function identityHost(): Promise<string | undefined> {
  const answer = await fetch(`${PATH}/oauth`);
  if (!answer.ok) return undefined;
  const { host } = (await answer.json()) as { host: string | null };
  return host ?? undefined;
}

/** Sends the browser there. Answers with the HTTP status if the node does not let it go. */
export async function goThere(): Promise<number> {
  const body = JSON.stringify({ redirect_uri: redirect() });
  const answer = await fetch(`${PATH}/oauth`, { method: "POST", headers, body });
  if (!answer.ok) return answer.status;
  const { place } = (await answer.json()) as { place: string };
  sessionStorage.setItem(WAS, `${location.pathname}${location.search}`);
  location.assign(place);
  return answer.status;
}
