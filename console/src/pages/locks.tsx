export function Locks() { return null; }
