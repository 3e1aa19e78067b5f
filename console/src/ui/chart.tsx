// A chart over time. Dragging across it zooms, and the range goes into the address; a double click shows all again.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import * as format from "../core/format";
import { prefersDark, theme } from "../core/kept";
import { said, show } from "../core/place";
import type { Mark } from "../types";
import { words } from "../words";

export interface Line {
  name: string;
  /** From the oldest to the newest; `null`: not known. */
  values: readonly (number | null)[];
  /** Counts are drawn to the left, rates to the right. */
  isRate?: boolean;
  /** Number of its colour, from 1 on. */
  colour: number;
  isDashed?: boolean;
}

interface Props {
  label: string;
  /** Milliseconds since 1970 of the first value, and from one to the next. */
  fromMs: number;
  stepMs: number;
  lines: readonly Line[];
  marks: readonly Mark[];
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

/** Colours of marks: as those beside their texts. */
const MARK_COLOURS = { leader: "--warn", start: "--bad", deployment: "--good" } as const;

/** Draws a line for each mark, from the top of the chart to its bottom. */
function drawMarks(chart: uPlot, marks: readonly Mark[]): void {
  const { ctx, bbox } = chart;
  const colours = new Map(marks.map(({ kind }) => [kind, resolved(MARK_COLOURS[kind])]));
  ctx.save();
  ctx.lineWidth = Math.max(1, Math.round(devicePixelRatio));
  for (const { at, kind } of marks) {
    const left = Math.round(chart.valToPos(at / 1000, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colours.get(kind) ?? "";
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(
  lines: readonly Line[],
  width: number,
  onDraw: (chart: uPlot) => void,
  onZoom: (from: number, to: number) => void,
): uPlot.Options {
  const [dim, line] = [resolved("--dim"), resolved("--line")];
  const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const numbers = (_: uPlot, values: number[]) => values.map((value) => format.rate(value));
  const clock = (_: uPlot, splits: number[]) => splits.map((at) => format.clock(at * 1000));
  const hasRates = lines.some((it) => it.isRate);
  const series = lines.map(({ name, isRate, colour: number, isDashed = false }) => ({
    label: name,
    scale: isRate ? "rate" : "count",
    stroke: resolved(`--series-${number}`),
    width: isDashed ? 1 : 1.5,
    ...(isDashed ? { dash: [5, 4] } : {}),
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
      draw: [onDraw],
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

export function Chart({ label, fromMs, stepMs, lines, marks }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const [zoomFrom, zoomTo] = [Number(said("from")), Number(said("to"))];
  const shown = useRef(marks);
  shown.current = marks;
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
    const onDraw = (drawn: uPlot) => drawMarks(drawn, shown.current);
    const made = new uPlot(options(lines, place.clientWidth, onDraw, onZoom), data(), place);
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
  }, [fromMs, stepMs, lines, marks, zoomFrom, zoomTo]);
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
