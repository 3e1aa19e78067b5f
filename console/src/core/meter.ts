// How fast totals grow, between two answers that told them.

interface Sample {
  total: number;
  atMs: number;
  rate: number | undefined;
}

/** Totals that are remembered. */
const KEPT_MAX = 1_000;

export class Meter {
  private readonly samples = new Map<string, Sample>();

  /** A second. `undefined`: the total was told once so far, or counts from 0 again. */
  of(key: string, total: number, atMs: number): number | undefined {
    const last = this.samples.get(key);
    if (last && atMs <= last.atMs) return last.rate;
    const grown = last && total >= last.total ? total - last.total : undefined;
    const rate = last && grown !== undefined ? (grown * 1000) / (atMs - last.atMs) : undefined;
    // What was told last is the last in the map.
    this.samples.delete(key);
    this.samples.set(key, { total, atMs, rate });
    for (const oldest of this.samples.keys()) {
      if (this.samples.size <= KEPT_MAX) break;
      this.samples.delete(oldest);
    }
    return rate;
  }
}
