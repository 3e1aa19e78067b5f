// Lists: a page of columns, a filter and actions; and a card with a table, for pages that have several.

import type { ComponentChildren } from "preact";
import type { Query } from "../core/query";
import { words } from "../words";
import { Card, Head, Loaded } from "./parts";
import { Search, VhostFilter, filterText, matches } from "./search";
import { ColumnMenu, Table, type TableProps } from "./table";

type Shown<Row> = Omit<TableProps<Row>, "label" | "rows">;

interface ListPageProps<Row> extends Shown<Row> {
  title: string;
  of: Query<Row[]>;
  /** Texts of a row in which the filter looks. */
  texts: (row: Row) => readonly (string | null | undefined)[];
  /** Whether one may choose a vhost. */
  isOfVhosts?: boolean;
  /** What can be done beside looking. */
  actions?: ComponentChildren;
}

/** A page that is one list. */
export function ListPage<Row>(props: ListPageProps<Row>) {
  const { title, of, texts, isOfVhosts = false, actions, empty, ...table } = props;
  const filter = filterText();
  return (
    <>
      <Head title={title}>
        <Search label={title} />
        {isOfVhosts && <VhostFilter />}
        {props.columns.some((column) => column.isExtra) && <ColumnMenu {...table} />}
        {actions}
      </Head>
      <Loaded of={of} what={title}>
        {(all) => (
          <Table
            {...table}
            label={title}
            rows={all.filter((row) => matches(filter, ...texts(row)))}
            isMain
            empty={all.length > 0 ? <p>{words.noneMatch}</p> : empty}
          />
        )}
      </Loaded>
    </>
  );
}

interface ListCardProps<Row, Answer> extends Shown<Row> {
  title: string;
  /** A sentence above the table. */
  text?: string;
  aside?: ComponentChildren;
  of: Query<Answer>;
  /** The rows of the table, of what was answered. */
  rows: (answer: Answer) => readonly Row[];
  /** What stands below the table. */
  children?: ComponentChildren;
}

/** A list that is a part of a page. */
export function ListCard<Row, Answer>(props: ListCardProps<Row, Answer>) {
  const { title, text, aside, of, rows, children, ...table } = props;
  return (
    <Card title={title} aside={aside}>
      {text !== undefined && <p class="dim">{text}</p>}
      <Loaded of={of} what={title}>
        {(answer) => <Table {...table} label={title} rows={rows(answer)} />}
      </Loaded>
      {children}
    </Card>
  );
}

/** What an empty list says, with something that helps. */
export function Nothing({ text, children }: { text: string; children?: ComponentChildren }) {
  return (
    <>
      <h2>{text}</h2>
      {children}
    </>
  );
}
