export function Connections() { return null; }
