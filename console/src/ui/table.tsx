// A table: sorted by its heads, with as many rows as there are. Of long tables only the rows in sight are made. Its
// order and which of its columns are shown are in the address.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { onRowKey } from "../core/keys";
import * as format from "../core/format";
import { said, show } from "../core/place";
import { words } from "../words";
import { type Key, type Sortable, orderText, parseOrder, pressed, sorted } from "./order";
import { windowOf } from "./window";

export interface Column<Row> {
  id: string;
  head: string;
  /** What is shown; without it, what it is sorted by, as a text or a grouped number. */
  cell?: (row: Row) => ComponentChildren;
  /** By what it is sorted; without it, it is not. */
  by?: (row: Row) => Sortable;
  isNumber?: boolean;
  /** Long texts go on in the next line. */
  wraps?: boolean;
  /** Not shown on a phone. */
  isWide?: boolean;
  /** Takes the room that the other columns leave, and cuts what is longer. */
  grows?: boolean;
  /** Not shown before somebody asks for it, or sorts by it. */
  isExtra?: boolean;
  title?: string;
}

export interface TableProps<Row> {
  /** Parts the values of several tables of a page in the address. */
  id?: string;
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** The order before anybody chooses one. */
  order?: string;
  selected?: ReadonlySet<string>;
  onSelect?: (selected: Set<string>) => void;
  /** The keys j and k walk through its rows. */
  isMain?: boolean;
  rowClass?: (row: Row) => string;
  empty: ComponentChildren;
}

const ROW_HEIGHT = 31;

/** Up to so many rows are all made: the page then grows, and nothing scrolls within it. */
const ALL_MAX = 150;

export function Table<Row>(props: TableProps<Row>) {
  const {
    id = "",
    label,
    columns,
    rows,
    keyOf,
    order = "",
    selected,
    onSelect,
    isMain = false,
    rowClass,
    empty,
  } = props;
  const keys = useOrder(id, order);
  const shown = useColumns(id, columns, keys);
  const value = (column: string, row: Row) => columns.find((it) => it.id === column)?.by?.(row);
  const all = sorted(rows, keys, value);

  const scroller = useRef<HTMLDivElement>(null);
  const [scrolled, setScrolled] = useState(0);
  const isLong = all.length > ALL_MAX;
  const height = scroller.current?.clientHeight ?? 800;
  const { first, end } = isLong
    ? windowOf(all.length, ROW_HEIGHT, scrolled, height)
    : { first: 0, end: all.length };
  useCursor(isMain, all.length, isLong, scroller);

  if (rows.length === 0) return <div class="empty">{empty}</div>;
  const press = (column: Column<Row>, isMore: boolean) => {
    const next = pressed(keys, column.id, column.isNumber ?? false, isMore);
    show({ [sortName(id)]: orderText(next) });
  };
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  const allKeys = () => all.map(keyOf);
  const isAll =
    selected !== undefined && selected.size > 0 && all.every((row) => selected.has(keyOf(row)));
  const width = shown.length + (onSelect ? 1 : 0);
  return (
    <div
      class={isLong ? "scroller long" : "scroller"}
      ref={scroller}
      role="region"
      aria-label={label}
      tabIndex={0}
      onScroll={(event) => isLong && setScrolled(event.currentTarget.scrollTop)}
    >
      <table aria-rowcount={all.length + 1}>
        <thead>
          <tr>
            {onSelect && (
              <th class="pick" scope="col">
                <input
                  type="checkbox"
                  aria-label={words.table.all}
                  checked={isAll}
                  onChange={() => onSelect(new Set(isAll ? [] : allKeys()))}
                />
              </th>
            )}
            {shown.map((column) => (
              <Heading key={column.id} column={column} keys={keys} press={press} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Spacer rows={first} width={width} />
          {all.slice(first, end).map((row, index) => {
            const key = keyOf(row);
            return (
              <tr
                key={key}
                data-row={first + index}
                aria-rowindex={first + index + 2}
                class={rowClass?.(row) ?? ""}
              >
                {onSelect && (
                  <td class="pick">
                    <input
                      type="checkbox"
                      aria-label={words.table.one(key.split("\u0000").pop() ?? key)}
                      checked={selected?.has(key) ?? false}
                      onChange={() => toggle(key)}
                    />
                  </td>
                )}
                {shown.map((column) => (
                  <td key={column.id} class={classOf(column)}>
                    {cellOf(column, row)}
                  </td>
                ))}
              </tr>
            );
          })}
          <Spacer rows={all.length - end} width={width} />
        </tbody>
      </table>
    </div>
  );
}

function cellOf<Row>({ cell, by }: Column<Row>, row: Row): ComponentChildren {
  if (cell) return cell(row);
  const value = by?.(row);
  return typeof value === "number" ? format.count(value) : (value ?? "");
}

const sortName = (id: string): string => (id === "" ? "sort" : `${id}.sort`);

/** The order that the address says, or the one before anybody chooses. */
function useOrder(id: string, otherwise: string): Key[] {
  const order = said(sortName(id)) || otherwise;
  return useMemo(() => parseOrder(order), [order]);
}

function classOf<Row>({ head, isNumber, isWide, grows, wraps }: Column<Row>): string {
  return [
    head === "" && "acts",
    isNumber && "number",
    isWide && "wide",
    grows && "grows",
    wraps && "wrap",
  ]
    .filter(Boolean)
    .join(" ");
}

function Spacer({ rows, width }: { rows: number; width: number }) {
  if (rows === 0) return null;
  return (
    <tr class="spacer" aria-hidden="true">
      <td colSpan={width} style={{ height: `${rows * ROW_HEIGHT}px` }} />
    </tr>
  );
}

interface HeadingProps<Row> {
  column: Column<Row>;
  keys: ReturnType<typeof parseOrder>;
  press: (column: Column<Row>, isMore: boolean) => void;
}

function Heading<Row>({ column, keys, press }: HeadingProps<Row>) {
  const place = keys.findIndex((key) => key.id === column.id);
  const key = keys[place];
  const arrow = key === undefined ? "" : key.isDown ? "↓" : "↑";
  const sort = key === undefined ? undefined : key.isDown ? "descending" : "ascending";
  return (
    <th scope="col" class={classOf(column)} aria-sort={sort} title={column.title}>
      {column.by ? (
        <button type="button" class="sort" onClick={(event) => press(column, event.shiftKey)}>
          {column.head}
          <span class="arrow" aria-hidden="true">
            {arrow}
            {keys.length > 1 && key ? place + 1 : ""}
          </span>
        </button>
      ) : (
        column.head || <span class="unseen">{words.table.acts}</span>
      )}
    </th>
  );
}

const columnsName = (id: string): string => (id === "" ? "columns" : `${id}.columns`);

/** Those that the address names; without it, those that are always shown, and those of the order. */
function useColumns<Row>(
  id: string,
  columns: readonly Column<Row>[],
  keys: readonly Key[],
): Column<Row>[] {
  const chosen = said(columnsName(id));
  const ids = chosen === "" ? undefined : chosen.split(",");
  const isShown = (column: Column<Row>) =>
    ids
      ? ids.includes(column.id)
      : column.isExtra !== true || keys.some((key) => key.id === column.id);
  return columns.filter(isShown);
}

/** The buttons of a row that can be changed and deleted. */
export function EditButtons({ onEdit, onDelete }: { onEdit: () => void; onDelete: () => void }) {
  return (
    <span class="actions">
      <button type="button" class="small" onClick={onEdit}>
        {words.change}
      </button>
      <button type="button" class="small danger" onClick={onDelete}>
        {words.remove}…
      </button>
    </span>
  );
}

/** A menu that shows and hides columns. */
export function ColumnMenu<Row>({
  id = "",
  columns,
  order = "",
}: Pick<TableProps<Row>, "id" | "columns" | "order">) {
  const shown = useColumns(id, columns, useOrder(id, order));
  const toggle = (column: Column<Row>) => {
    const next = columns.filter((it) => (it === column ? !shown.includes(it) : shown.includes(it)));
    if (next.length > 0) show({ [columnsName(id)]: next.map((it) => it.id).join(",") });
  };
  return (
    <details class="menu">
      <summary>{words.table.columns}</summary>
      <div class="menu-box">
        {columns.map((column) => (
          <label key={column.id} class="check">
            <input
              type="checkbox"
              checked={shown.includes(column)}
              onChange={() => toggle(column)}
            />
            <span>{column.head}</span>
          </label>
        ))}
      </div>
    </details>
  );
}

/** Walks through the rows: the focus goes to the link of the row, so that Enter opens it. */
function useCursor(
  isMain: boolean,
  count: number,
  isLong: boolean,
  scroller: { current: HTMLDivElement | null },
): void {
  const [cursor, setCursor] = useState(-1);
  useEffect(() => {
    if (!isMain) return undefined;
    return onRowKey((step) => setCursor((at) => Math.max(0, Math.min(count - 1, at + step))));
  }, [isMain, count]);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (cursor < 0 || !box) return undefined;
    if (isLong) {
      const top = cursor * ROW_HEIGHT;
      if (top < box.scrollTop) box.scrollTop = top;
      else if (top + 2 * ROW_HEIGHT > box.scrollTop + box.clientHeight)
        box.scrollTop = top - box.clientHeight + 3 * ROW_HEIGHT;
    }
    const frame = requestAnimationFrame(() => {
      const link = box.querySelector<HTMLElement>(`tr[data-row="${cursor}"] :is(a, button)`);
      link?.focus({ preventScroll: isLong });
    });
    return () => cancelAnimationFrame(frame);
  }, [cursor, isLong]);
}
