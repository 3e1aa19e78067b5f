export function Topology() { return null; }
