// What permissions in a vhost allow, as far as the console can tell. The node decides.

/** By vhost. */
export type Permissions = Record<string, { configure: string; write: string; read: string }>;

/** Whether a pattern allows a name. One that a browser reads as something else may allow it. */
export function allows(pattern: string, name: string): boolean {
  if (pattern === "") return name === "";
  try {
    return new RegExp(pattern, "u").test(name);
  } catch {
    return true;
  }
}

/** Whether a user may read from a queue. What a token gives is not told: it may. */
export function reads(permissions: Permissions | undefined, vhost: string, name: string): boolean {
  if (permissions === undefined) return true;
  const own = permissions[vhost];
  return own !== undefined && allows(own.read, name);
}
