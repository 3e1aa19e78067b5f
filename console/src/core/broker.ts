// Answers that several pages share.

import { computed } from "@preact/signals";
import type { Overview, Problems, Vhost } from "../types";
import { path } from "./api";
import { said } from "./place";
import { type Query, useQuery } from "./query";
import { session } from "./session";

const PROBLEMS_MS = 10_000;

export function useOverview(): Query<Overview> {
  return useQuery<Overview>("/overview?disable_stats=true", 60_000);
}

export function useProblems(): Query<Problems> {
  return useQuery<Problems>("/millrace/problems", PROBLEMS_MS);
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
