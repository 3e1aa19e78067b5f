// A chart over time. Dragging across it zooms, and the range goes into the address; a double click shows all again.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import * as format from "../core/format";
import { prefersDark, theme } from "../core/kept";
import { said, show } from "../core/place";
import { words } from "../words";

export interface Line {
  name: string;
  /** From the oldest to the newest; `null`: not known. */
  values: readonly (number | null)[];
  /** Counts are drawn to the left, rates to the right. */
  isRate?: boolean;
}

interface Props {
  label: string;
  /** Milliseconds since 1970 of the first value, and from one to the next. */
  fromMs: number;
  stepMs: number;
  lines: readonly Line[];
}

const HEIGHT = 240;

const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name);

/** What `light-dark()` stands for is known only where it is used. */
function resolved(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = colour(name);
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function options(
  lines: readonly Line[],
  width: number,
  onZoom: (from: number, to: number) => void,
): uPlot.Options {
  const [dim, line] = [resolved("--dim"), resolved("--line")];
  const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const numbers = (_: uPlot, values: number[]) => values.map((value) => format.rate(value));
  const clock = (_: uPlot, splits: number[]) => splits.map((at) => format.clock(at * 1000));
  const hasRates = lines.some((it) => it.isRate);
  const series = lines.map(({ name, isRate }, index) => ({
    label: name,
    scale: isRate ? "rate" : "count",
    stroke: resolved(`--series-${index + 1}`),
    width: 1.5,
    points: { size: 4 },
    value: (_: uPlot, value: number | null) => format.rate(value),
  }));
  const time = {
    label: words.chart.time,
    value: (_: uPlot, at: number | null) => format.time(at && at * 1000),
  };
  const scale = {
    range: (_: uPlot, _low: number, high: number): [number, number] => [
      0,
      Math.max(1, high * 1.08),
    ],
  };
  return {
    width,
    height: HEIGHT,
    scales: { x: { time: true }, count: scale, rate: scale },
    series: [time, ...series],
    axes: [
      { ...axis, values: clock },
      { ...axis, scale: "count", size: 64, values: numbers },
      ...(hasRates
        ? [
            {
              ...axis,
              scale: "rate",
              side: 1 as const,
              size: 56,
              values: numbers,
              grid: { show: false },
            },
          ]
        : []),
    ],
    cursor: { drag: { x: true, y: false, setScale: false } },
    hooks: {
      setSelect: [
        (chart) => {
          const { left, width: selected } = chart.select;
          if (selected < 4) return;
          onZoom(chart.posToVal(left, "x") * 1000, chart.posToVal(left + selected, "x") * 1000);
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

export function Chart({ label, fromMs, stepMs, lines }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const [zoomFrom, zoomTo] = [Number(said("from")), Number(said("to"))];
  const names = lines.map((line) => line.name).join();
  const data = (): uPlot.AlignedData => {
    const length = lines[0]?.values.length ?? 0;
    const times = Array.from({ length }, (_, index) => (fromMs + index * stepMs) / 1000);
    return [times, ...lines.map((line) => [...line.values])] as uPlot.AlignedData;
  };
  useEffect(() => {
    const place = box.current;
    if (!place) return undefined;
    const onZoom = (from: number, to: number) =>
      show({ from: Math.round(from), to: Math.round(to) }, "push");
    const made = new uPlot(options(lines, place.clientWidth, onZoom), data(), place);
    chart.current = made;
    const watcher = new ResizeObserver(() =>
      made.setSize({ width: place.clientWidth, height: HEIGHT }),
    );
    watcher.observe(place);
    return () => {
      watcher.disconnect();
      made.destroy();
      chart.current = undefined;
    };
    // Made anew for other lines or colours only: new values are put into the chart that is there.
  }, [names, theme.value, prefersDark.value]);
  useEffect(() => {
    chart.current?.setData(data());
    if (zoomFrom > 0) chart.current?.setScale("x", { min: zoomFrom / 1000, max: zoomTo / 1000 });
  }, [fromMs, stepMs, lines, zoomFrom, zoomTo]);
  return (
    <div
      class="chart"
      ref={box}
      role="figure"
      aria-label={label}
      onDblClick={() => show({ from: undefined, to: undefined }, "push")}
    />
  );
}
