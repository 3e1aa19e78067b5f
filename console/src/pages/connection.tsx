export function ConnectionPage() { return null; }
