// Answers that several pages share.

import { computed } from "@preact/signals";
import { problems } from "../live/stream";
import type { Overview, Problems, Vhost } from "../types";
import { path } from "./api";
import { said } from "./place";
import { type Query, useQuery } from "./query";
import { session } from "./session";

const PROBLEMS_MS = 10_000;

export function useOverview(): Query<Overview> {
  return useQuery<Overview>("/overview?disable_stats=true", 60_000);
}

/** What is wrong: as the stream tells it, or asked for while the stream says nothing. */
export function useProblems(): Query<Problems> {
  const told = problems.value;
  const query = useQuery<Problems>(
    told === undefined ? "/millrace/problems" : undefined,
    PROBLEMS_MS,
  );
  return told === undefined
    ? query
    : { ...query, data: told, refused: undefined, isLoading: false };
}

export function useVhosts(): string[] {
  const { data } = useQuery<Vhost[]>("/vhosts");
  return (data ?? []).map((vhost) => vhost.name);
}

/** A list of all vhosts, or of the one that the address names. */
export function listPath(of: string): string {
  const vhost = said("vhost");
  return vhost === "" ? path(of) : path(of, vhost);
}

export const user = computed(() => session.value?.user ?? "");
