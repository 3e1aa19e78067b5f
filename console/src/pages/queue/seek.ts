// Where a subscription goes on, as the API takes it.

export type How = "first" | "last" | "next" | "offset" | "age" | "time";

export type SeekTo = { offset: string | number } | { timestamp: number };

const AGE = /^\d+[YMDhms]$/;

/** `undefined`: the value is none of this kind. */
export function placeOf(how: How, value: string): SeekTo | undefined {
  switch (how) {
    case "first":
    case "last":
    case "next":
      return { offset: how };
    case "offset":
      return /^\d+$/.test(value) ? { offset: Number(value) } : undefined;
    case "age":
      return AGE.test(value) ? { offset: value } : undefined;
    case "time": {
      const at = new Date(value).getTime();
      return Number.isNaN(at) ? undefined : { timestamp: Math.floor(at / 1000) };
    }
  }
}
