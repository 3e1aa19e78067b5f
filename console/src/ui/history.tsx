// How something stood over the last two days: a chart with its range in the address, beside the day before if that is
// wanted, and what happened in that time.

import { withAsked } from "../core/api";
import { said, show } from "../core/place";
import { useQuery } from "../core/query";
import { now } from "../core/visible";
import type { Series } from "../types";
import { words } from "../words";
import { Chart, type Line } from "./chart";
import { Choice } from "./fields";
import { Marks, TellDeployment } from "./marks";
import { Card, Loaded } from "./parts";

const EVERY_MS = 10_000;
const DAY_S = 86_400;

/** Seconds that the node has points for: of 10 seconds, a minute, 5 minutes. */
export const RANGES = ["900", "3600", "21600", "86400", "172800"] as const;
type Range = (typeof RANGES)[number];

/** The longest, which cannot be compared: the day before it is not kept. */
const LONGEST: Range = "172800";

const isRange = (text: string): text is Range => RANGES.some((range) => range === text);

/** A number of the series, and how it is drawn. */
export interface Drawn {
  number: string;
  name: string;
  isRate?: boolean;
}

function linesOf(told: Series, drawn: readonly Drawn[]): Line[] {
  const seconds = told.step_ms / 1000;
  return drawn.map(({ number, name, isRate = false }, index) => {
    const values = told.series[number] ?? [];
    // A point says what came in its time: the chart says it a second.
    return {
      name,
      isRate,
      colour: index + 1,
      values: isRate ? values.map((value) => value && value / seconds) : values,
    };
  });
}

/** Lines of the day before, at the times of today. Its points are longer: one stands for several of today's. */
export function dayBefore(lines: readonly Line[], then: Series, now: Series): Line[] {
  const length = Math.round((now.to - now.from) / now.step_ms);
  const placeOf = (index: number): number =>
    Math.floor((now.from + index * now.step_ms - DAY_S * 1000 - then.from) / then.step_ms);
  return lines.map((line) => ({
    ...line,
    name: words.chart.dayBefore(line.name),
    isDashed: true,
    values: Array.from({ length }, (_, index) => line.values[placeOf(index)] ?? null),
  }));
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
  const zoomRange = RANGES.find((range) => Number(range) >= back) ?? LONGEST;
  const range: Range = isZoomed ? zoomRange : isRange(asked) ? asked : "3600";
  const canCompare = range !== LONGEST;
  const compares = canCompare && said("compare") === "day";
  const query = useQuery<Series>(withAsked(path, { seconds: range }), EVERY_MS);
  const before = useQuery<Series>(
    compares ? withAsked(path, { seconds: range, ago: DAY_S }) : undefined,
    EVERY_MS,
  );
  const choose = (next: Range) => show({ range: next, from: undefined, to: undefined }, "push");
  const { ranges, zoomOut, hint, nothing, compare } = words.chart;
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
          <TellDeployment />
          {canCompare && (
            <button
              type="button"
              class="small"
              aria-pressed={compares}
              onClick={() => show({ compare: compares ? undefined : "day" }, "push")}
            >
              {compare}
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
          const today = linesOf(told, drawn);
          const then = compares ? before.data : undefined;
          const lines = then ? [...today, ...dayBefore(linesOf(then, drawn), then, told)] : today;
          const isKnown = lines.some((line) => line.values.some((value) => value !== null));
          const { marks = [], marks_left_out: leftOut = 0 } = told;
          return (
            <>
              {isKnown ? (
                <>
                  <Chart
                    label={title}
                    fromMs={told.from}
                    stepMs={told.step_ms}
                    lines={lines}
                    marks={marks}
                  />
                  <p class="dim">{hint}</p>
                </>
              ) : (
                <p class="dim">{nothing}</p>
              )}
              <Marks of={marks} leftOut={leftOut} />
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}
