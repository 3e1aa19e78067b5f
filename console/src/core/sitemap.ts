// The pages that the navigation has: where they are, the letter behind `g`, and who may see them.

import { computed } from "@preact/signals";
import { words } from "../words";
import type { Role } from "./role";
import { role } from "./session";

export interface Page {
  path: string;
  key: string;
  title: string;
  group: keyof typeof words.groups;
  /** Without it everybody who is logged in sees the page. */
  needs?: (role: Role) => boolean;
}

const administrates = (it: Role): boolean => it.administrates;
const monitors = (it: Role): boolean => it.monitors;
const makesPolicies = (it: Role): boolean => it.makesPolicies;

const { pages } = words;

export const PAGES: readonly Page[] = [
  { path: "/", key: "o", title: pages.overview, group: "messages" },
  { path: "/queues", key: "q", title: pages.queues, group: "messages" },
  { path: "/streams", key: "s", title: pages.streams, group: "messages" },
  { path: "/dead-letters", key: "d", title: pages.dead, group: "messages" },
  { path: "/held", key: "h", title: pages.held, group: "messages" },
  { path: "/exchanges", key: "e", title: pages.exchanges, group: "messages" },
  { path: "/topology", key: "t", title: pages.topology, group: "messages" },
  { path: "/connections", key: "c", title: pages.connections, group: "clients" },
  { path: "/channels", key: "n", title: pages.channels, group: "clients" },
  { path: "/consumers", key: "m", title: pages.consumers, group: "clients" },
  { path: "/locks", key: "k", title: pages.locks, group: "clients" },
  { path: "/companions", key: "r", title: pages.companions, group: "clients", needs: monitors },
  { path: "/cluster", key: "l", title: pages.cluster, group: "administration", needs: monitors },
  { path: "/users", key: "u", title: pages.users, group: "administration", needs: administrates },
  { path: "/vhosts", key: "v", title: pages.vhosts, group: "administration" },
  {
    path: "/policies",
    key: "p",
    title: pages.policies,
    group: "administration",
    needs: makesPolicies,
  },
  { path: "/limits", key: "i", title: pages.limits, group: "administration", needs: administrates },
  { path: "/audit", key: "a", title: pages.audit, group: "administration", needs: administrates },
];

export const allowedPages = computed(() =>
  PAGES.filter((page) => page.needs?.(role.value) ?? true),
);

/** Pages of one thing, and the page that lists such things. */
const PARENTS: Record<string, string> = {
  "/queue": "/queues",
  "/exchange": "/exchanges",
  "/connection": "/connections",
  "/user": "/users",
};

export const parentOf = (path: string): string => PARENTS[path] ?? path;
