// Problems as people count them.

import type { Problem } from "../types";

/** Problems of a kind with one thing: each partition of a queue has its own. */
export interface Alike {
  first: Problem;
  count: number;
}

export const keyOfProblem = ({ kind, object }: Problem): string => kind + JSON.stringify(object);

export function worstFirst(problems: readonly Problem[]): Alike[] {
  const alike = new Map<string, Alike>();
  for (const problem of problems) {
    const key = keyOfProblem(problem);
    const { first, count } = alike.get(key) ?? { first: problem, count: 0 };
    alike.set(key, { first, count: count + 1 });
  }
  return [...alike.values()].sort((one, other) =>
    one.first.severity.localeCompare(other.first.severity),
  );
}
