export function Vhosts() { return null; }
