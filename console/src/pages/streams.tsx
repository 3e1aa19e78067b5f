export function Streams() { return null; }
