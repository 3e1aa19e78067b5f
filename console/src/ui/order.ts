// The order of a table, as the address says it: `-ready,name` is by `ready` from the largest on, then by `name`.

export interface Key {
  id: string;
  isDown: boolean;
}

export type Sortable = number | string | boolean | null | undefined;

export function parseOrder(text: string): Key[] {
  const parts = text.split(",").filter((part) => part !== "" && part !== "-");
  return parts.map((part) =>
    part.startsWith("-") ? { id: part.slice(1), isDown: true } : { id: part, isDown: false },
  );
}

export function orderText(keys: readonly Key[]): string {
  return keys.map(({ id, isDown }) => (isDown ? `-${id}` : id)).join(",");
}

/** A click on a column: it comes first, or turns round. `isMore`: beside those that are there. */
export function pressed(
  keys: readonly Key[],
  id: string,
  startsDown: boolean,
  isMore: boolean,
): Key[] {
  const before = keys.find((key) => key.id === id);
  const key = { id, isDown: before ? !before.isDown : startsDown };
  if (!isMore) return [key];
  return before ? keys.map((other) => (other.id === id ? key : other)) : [...keys, key];
}

const NAMES = new Intl.Collator("en", { numeric: true });

/** What is not known comes last in either direction: see `sorted`. */
function compare(one: Sortable, other: Sortable): number {
  if (typeof one === "string" && typeof other === "string") return NAMES.compare(one, other);
  return Number(one) - Number(other);
}

const isUnknown = (value: Sortable): boolean => value === null || value === undefined;

/** A sorted copy. Items that are the same by all keys stay in their order. */
export function sorted<Item>(
  items: readonly Item[],
  keys: readonly Key[],
  value: (id: string, item: Item) => Sortable,
): Item[] {
  if (keys.length === 0) return [...items];
  return [...items].sort((one, other) => {
    for (const { id, isDown } of keys) {
      const [a, b] = [value(id, one), value(id, other)];
      if (isUnknown(a) !== isUnknown(b)) return isUnknown(a) ? 1 : -1;
      const order = isUnknown(a) ? 0 : compare(a, b);
      if (order !== 0) return isDown ? -order : order;
    }
    return 0;
  });
}
