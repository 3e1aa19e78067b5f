// What nodes say of groups and of their disks.

/** How far the replicas of a group are. */
export interface GroupLag {
  group: number;
  replicas: { node: string; matched: number | null; behind: number | null }[];
}

/** What a node's data directory takes. */
export interface Disk {
  path: string;
  total: number;
  free: number;
  parts: { name: string; bytes: number; files: number }[];
}

export interface Reconciled {
  groups: {
    group: number;
    differs: boolean;
    replicas: { node: string; leads: boolean; index: number | null; digest: string | null }[];
  }[];
}

/** Which groups an order would move: the nodes of each, now and then. The first is to lead. */
export interface Moves {
  moves: { group: number; nodes: string[]; nodes_then: string[] }[];
}

/** What the node says of an order that it carried out. */
export interface Ordered {
  said: string;
  steps: string[];
}
