export function Cluster() { return null; }
