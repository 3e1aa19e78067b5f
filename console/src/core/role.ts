// What the tags of a user allow, as the node decides it. The console offers nothing that the node would refuse by tag;
// what permissions in a vhost allow is in `rights.ts`.

export interface Role {
  /** Sees all vhosts, connections and nodes. */
  monitors: boolean;
  administrates: boolean;
  /** Changes policies, and pauses queues. */
  makesPolicies: boolean;
  /** Sees what is in messages. */
  peeks: boolean;
  /** May change something at all. */
  changes: boolean;
}

export function roleOf(tags: readonly string[]): Role {
  const has = (tag: string) => tags.includes(tag);
  const administrates = has("administrator");
  const changes = !has("read-only");
  return {
    monitors: administrates || has("monitoring"),
    administrates,
    makesPolicies: administrates || has("policymaker"),
    peeks: administrates || has("peek"),
    changes,
  };
}
