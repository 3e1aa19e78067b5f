export function Exchanges() { return null; }
