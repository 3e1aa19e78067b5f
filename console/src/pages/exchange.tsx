export function ExchangePage() { return null; }
