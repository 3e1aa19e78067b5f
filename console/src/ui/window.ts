// Which rows of a long table are in sight: only those are made.

/** Rows that are made above and below those in sight, so that a scroll does not show an empty table. */
const SPARE = 12;

export interface Window {
  first: number;
  end: number;
}

export function windowOf(
  count: number,
  rowHeight: number,
  scrolled: number,
  height: number,
): Window {
  const first = Math.max(0, Math.min(count, Math.floor(scrolled / rowHeight)) - SPARE);
  const end = Math.min(count, Math.ceil((scrolled + height) / rowHeight) + SPARE);
  return { first, end: Math.max(first, end) };
}
