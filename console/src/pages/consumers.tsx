export function Consumers() { return null; }
