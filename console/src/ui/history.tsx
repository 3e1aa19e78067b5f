// How something stood over the last day: a chart with its range in the address.

import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import { now } from "../core/visible";
import type { Series } from "../types";
import { words } from "../words";
import { Chart, type Line } from "./chart";
import { Choice } from "./fields";
import { Card, Loaded } from "./parts";

const EVERY_MS = 10_000;

/** Seconds that the node has points for: of 10 seconds, a minute, 5 minutes. */
export const RANGES = ["900", "3600", "21600", "86400"] as const;
type Range = (typeof RANGES)[number];

const isRange = (text: string): text is Range => RANGES.some((range) => range === text);

/** A number of the series, and how it is drawn. */
export interface Drawn {
  number: string;
  name: string;
  isRate?: boolean;
}

function linesOf(told: Series, drawn: readonly Drawn[]): Line[] {
  const seconds = told.step_ms / 1000;
  return drawn.map(({ number, name, isRate = false }) => {
    const values = told.series[number] ?? [];
    // A point says what came in its time: the chart says it a second.
    return {
      name,
      isRate,
      values: isRate ? values.map((value) => value && value / seconds) : values,
    };
  });
}

export function History({
  path,
  drawn,
  title,
}: {
  path: string;
  drawn: readonly Drawn[];
  title: string;
}) {
  const asked = said("range");
  const zoomFrom = Number(said("from"));
  const isZoomed = zoomFrom > 0;
  // The finest points that reach back to where the zoom begins.
  const back = (now.peek() - zoomFrom) / 1000;
  const zoomRange = RANGES.find((range) => Number(range) >= back) ?? "86400";
  const range: Range = isZoomed ? zoomRange : isRange(asked) ? asked : "3600";
  const query = useQuery<Series>(`${path}?seconds=${range}`, EVERY_MS);
  const choose = (next: Range) => show({ range: next, from: undefined, to: undefined }, "push");
  const { ranges, zoomOut, hint, nothing } = words.chart;
  return (
    <Card
      title={title}
      aside={
        <>
          {isZoomed && (
            <button
              type="button"
              class="small"
              onClick={() => show({ from: undefined, to: undefined }, "push")}
            >
              {zoomOut}
            </button>
          )}
          <Choice
            label={words.chart.range}
            value={range}
            options={RANGES.map((it) => [it, ranges[it]])}
            onChoose={choose}
          />
        </>
      }
    >
      <Loaded of={query} what={title}>
        {(told) => {
          const lines = linesOf(told, drawn);
          const isKnown = lines.some((line) => line.values.some((value) => value !== null));
          if (!isKnown) return <p class="dim">{nothing}</p>;
          return (
            <>
              <Chart label={title} fromMs={told.from} stepMs={told.step_ms} lines={lines} />
              <p class="dim">{hint}</p>
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}
