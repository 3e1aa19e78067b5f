// Who changed what.

import { withAsked } from "../core/api";
import * as format from "../core/format";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import type { AuditRecord, Page } from "../types";
import { TextField } from "../ui/fields";
import { Arguments, Head, Loaded, Name, Time } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { words } from "../words";

const TEXTS = words.audit;
const { heads } = TEXTS;

const PAGE_SIZE = 100;

const FILTERS = ["user", "vhost", "object", "event"] as const;

const COLUMNS: readonly Column<AuditRecord>[] = [
  { id: "time", head: heads.time, cell: (it) => <Time at={it.time} /> },
  { id: "user", head: heads.user, cell: (it) => it.user, wraps: true },
  { id: "event", head: heads.event, cell: (it) => <Event name={it.event} /> },
  { id: "object", head: heads.object, cell: (it) => <Name text={it.object} />, wraps: true },
  { id: "vhost", head: words.vhost, cell: (it) => it.vhost, isWide: true },
  {
    id: "details",
    head: heads.details,
    cell: (it) => <Arguments of={it.details} none="" />,
    wraps: true,
    isWide: true,
  },
  { id: "address", head: heads.address, cell: (it) => it.address ?? format.NOTHING, isWide: true },
];

function Event({ name }: { name: string }) {
  return (
    <code>
      <Name text={name} />
    </code>
  );
}

/** A day as the viewer says it, in milliseconds since 1970. */
function dayMs(text: string, isEnd: boolean): number | undefined {
  const at = new Date(`${text}T${isEnd ? "23:59:59.999" : "00:00:00"}`).getTime();
  return Number.isNaN(at) ? undefined : at;
}

export function Audit() {
  const page = Math.max(1, Number(said("page")) || 1);
  const filters = Object.fromEntries(FILTERS.map((name) => [name, said(name)]));
  const since = dayMs(said("since"), false);
  const until = dayMs(said("until"), true);
  const asked = { ...filters, since, until, page, page_size: PAGE_SIZE };
  const query = useQuery<Page<AuditRecord>>(withAsked("/millrace/audit", asked), 15_000);
  return (
    <>
      <Head title={words.pages.audit} />
      <form class="row tight" onSubmit={(event) => event.preventDefault()}>
        {FILTERS.map((name) => (
          <TextField
            key={name}
            label={name === "vhost" ? words.vhost : heads[name]}
            type="search"
            value={said(name)}
            {...(name === "user" ? { "data-search": true } : {})}
            onText={(text) => show({ [name]: text, page: undefined })}
          />
        ))}
        <TextField
          label={TEXTS.since}
          type="date"
          value={said("since")}
          onText={(text) => show({ since: text, page: undefined })}
        />
        <TextField
          label={TEXTS.until}
          type="date"
          value={said("until")}
          onText={(text) => show({ until: text, page: undefined })}
        />
      </form>
      <Loaded of={query} what={words.pages.audit}>
        {(told) => (
          <>
            <Table
              label={words.pages.audit}
              columns={COLUMNS}
              rows={told.items}
              keyOf={(it) => String(it.number)}
              empty={<p>{TEXTS.nothing}</p>}
            />
            <Pages told={told} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Pages({ told }: { told: Page<AuditRecord> }) {
  const { page, page_count, filtered_count } = told;
  return (
    <p class="actions pages">
      <button type="button" disabled={page <= 1} onClick={() => show({ page: page - 1 }, "push")}>
        {TEXTS.newer}
      </button>
      <span>{TEXTS.page(page, Math.max(1, page_count), filtered_count)}</span>
      <button
        type="button"
        disabled={page >= page_count}
        onClick={() => show({ page: page + 1 }, "push")}
      >
        {TEXTS.older}
      </button>
    </p>
  );
}
