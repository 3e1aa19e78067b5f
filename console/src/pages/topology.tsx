// The exchanges, bindings and queues of a vhost as a picture, and the way that a message with some key takes.

import { path, withAsked } from "../core/api";
import { useVhosts } from "../core/broker";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import type { Binding, Exchange, Explained } from "../types";
import { SelectField, TextField } from "../ui/fields";
import { Card, Failure, Head, Loaded, exchangeHref, queueHref } from "../ui/parts";
import { useExplained } from "../ui/publish";
import { Route } from "../ui/route";
import { matches } from "../ui/search";
import { words } from "../words";
import {
  type Arrow,
  type Box,
  type Picture,
  type Shown,
  exchangeId,
  layout,
  queueId,
} from "./topology/layout";

const TEXTS = words.topology;

const BOXES_MAX = 200;

/** Units of the picture. */
const BOX = { width: 190, height: 30 };
const STEP = { x: 272, y: 44 };
const MARGIN = 12;

export function Topology() {
  const vhosts = useVhosts();
  const vhost = said("vhost") || (vhosts[0] ?? "/");
  const exchanges = useQuery<Exchange[]>(path("exchanges", vhost), 30_000);
  const bindings = useQuery<Binding[]>(path("bindings", vhost), 30_000);
  const columns = "name,type,arguments,effective_policy_definition";
  const queues = useQuery<Shown[]>(withAsked(path("queues", vhost), { columns }), 30_000);
  const filter = said("q");
  return (
    <>
      <Head title={words.pages.topology} />
      <form class="row" onSubmit={(event) => event.preventDefault()}>
        <SelectField
          label={words.vhost}
          value={vhost}
          options={vhosts.map((it) => [it, it])}
          onChoose={(it) => show({ vhost: it })}
        />
        <TextField
          label={TEXTS.filter}
          type="search"
          data-search
          value={filter}
          onText={(q) => show({ q })}
        />
        <SelectField
          label={TEXTS.exchange}
          value={said("exchange")}
          options={[
            ["", TEXTS.noExchange],
            ...(exchanges.data ?? []).filter((it) => it.name).map(nameTwice),
          ]}
          onChoose={(exchange) => show({ exchange })}
        />
        <TextField label={TEXTS.key} value={said("key")} onText={(key) => show({ key })} />
      </form>
      {said("exchange") !== "" && <Way vhost={vhost} />}
      <Loaded of={exchanges} what={words.pages.exchanges}>
        {(allExchanges) => (
          <Loaded of={bindings} what={words.exchanges.bindings}>
            {(allBindings) => (
              <Loaded of={queues} what={words.pages.queues}>
                {(allQueues) => (
                  <Drawn
                    vhost={vhost}
                    picture={filtered(filter, allExchanges, allQueues, allBindings)}
                  />
                )}
              </Loaded>
            )}
          </Loaded>
        )}
      </Loaded>
    </>
  );
}

const nameTwice = ({ name }: Exchange): [string, string] => [name, name];

/** What the filter names, and what is one binding away from it. */
function filtered(
  filter: string,
  exchanges: Exchange[],
  queues: Shown[],
  bindings: Binding[],
): Picture {
  if (filter === "") return layout(exchanges, queues, bindings, BOXES_MAX);
  const near = bindings.filter(
    (it) => matches(filter, it.source) || matches(filter, it.destination),
  );
  const names = new Set(near.flatMap((it) => [exchangeId(it.source), idOf(it)]));
  const isNear = (id: string, name: string) => names.has(id) || matches(filter, name);
  return layout(
    exchanges.filter((it) => isNear(exchangeId(it.name), it.name)),
    queues.filter((it) => isNear(queueId(it.name), it.name)),
    near,
    BOXES_MAX,
  );
}

const idOf = (it: Binding): string =>
  it.destination_type === "queue" ? queueId(it.destination) : exchangeId(it.destination);

function useWay(vhost: string): Explained | undefined {
  const exchange = said("exchange");
  const to = useExplained(vhost, exchange, said("key"), "");
  return useQuery<Explained>(exchange === "" ? undefined : to).data;
}

function Way({ vhost }: { vhost: string }) {
  const query = useQuery<Explained>(useExplained(vhost, said("exchange"), said("key"), ""));
  return (
    <Card title={TEXTS.way(said("key"))}>
      {query.refused && <Failure error={query.refused} />}
      {query.data && <Route told={query.data} vhost={vhost} />}
    </Card>
  );
}

/** Ends of the arrows that the message takes. */
function takenBy(way: Explained | undefined): Set<string> {
  const taken = (way?.hops ?? []).flatMap((hop) =>
    hop.bindings
      .filter((it) => it.is_taken)
      .map(
        (it) =>
          `${exchangeId(hop.exchange)}\u0000${it.destination_type === "queue" ? "q" : "e"} ${it.destination}`,
      ),
  );
  return new Set(taken);
}

function Drawn({ vhost, picture }: { vhost: string; picture: Picture }) {
  const way = useWay(vhost);
  const taken = takenBy(way);
  const { boxes, arrows, columns, rows } = picture;
  if (boxes.length === 0) {
    return (
      <div class="empty">
        <h2>{TEXTS.nothing}</h2>
        <p>{TEXTS.nothingMore}</p>
      </div>
    );
  }
  const places = new Map(boxes.map((box) => [box.id, box]));
  const [width, height] = [
    columns * STEP.x - (STEP.x - BOX.width) + 2 * MARGIN + 40,
    rows * STEP.y + 2 * MARGIN,
  ];
  return (
    <>
      <p class="dim">{boxes.length === BOXES_MAX ? TEXTS.tooMany(BOXES_MAX) : TEXTS.legend}</p>
      <div class="scroller" role="region" aria-label={words.pages.topology} tabIndex={0}>
        <svg class="topology" width={width} height={height} aria-label={words.pages.topology}>
          <defs>
            <marker
              id="tip"
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerWidth="7"
              markerHeight="7"
              orient="auto"
            >
              <path d="M0 0L8 4L0 8z" />
            </marker>
          </defs>
          {arrows.map((arrow) => (
            <Line
              key={arrow.from + arrow.kind + arrow.to}
              arrow={arrow}
              places={places}
              isTaken={arrow.kind === "binding" && taken.has(`${arrow.from}\u0000${arrow.to}`)}
            />
          ))}
          {boxes.map((box) => (
            <Thing key={box.id} box={box} vhost={vhost} />
          ))}
        </svg>
      </div>
    </>
  );
}

const leftOf = (box: Box): number => MARGIN + box.column * STEP.x;
const middleOf = (box: Box): number => MARGIN + box.row * STEP.y + BOX.height / 2;

function Line({
  arrow,
  places,
  isTaken,
}: {
  arrow: Arrow;
  places: Map<string, Box>;
  isTaken: boolean;
}) {
  const [from, to] = [places.get(arrow.from), places.get(arrow.to)];
  if (!from || !to) return null;
  const isBack = to.column <= from.column;
  const [x1, y1] = [leftOf(from) + BOX.width, middleOf(from)];
  // An arrow that leads back goes round on the right side of both.
  const [x2, y2] = [isBack ? leftOf(to) + BOX.width : leftOf(to), middleOf(to)];
  const bend = isBack
    ? [Math.max(x1, x2) + 46, Math.max(x1, x2) + 46]
    : [(x1 + x2) / 2, (x1 + x2) / 2];
  return (
    <g class={`arrow ${arrow.kind.replace(" ", "-")}${isTaken ? " taken" : ""}`}>
      <path d={`M${x1} ${y1}C${bend[0]} ${y1} ${bend[1]} ${y2} ${x2} ${y2}`} markerEnd="url(#tip)">
        <title>{TEXTS.arrow(arrow.kind, arrow.text)}</title>
      </path>
      {!isBack && arrow.text !== "" && (
        <text x={x2 - 10} y={y2 - 4}>
          {short(arrow.text, 10)}
        </text>
      )}
    </g>
  );
}

function Thing({ box, vhost }: { box: Box; vhost: string }) {
  const [x, y] = [leftOf(box), MARGIN + box.row * STEP.y];
  const to = box.kind === "queue" ? queueHref(vhost, box.name) : exchangeHref(vhost, box.name);
  return (
    <a href={to} class={`thing ${box.kind}`}>
      <title>{`${box.name} (${box.type})`}</title>
      <rect x={x} y={y} width={BOX.width} height={BOX.height} rx={box.kind === "queue" ? 4 : 15} />
      <text x={x + 12} y={y + 19}>
        {short(box.name, 24)}
      </text>
    </a>
  );
}

const short = (text: string, letters: number): string =>
  text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
