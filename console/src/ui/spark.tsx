// A line of the last numbers, without axes: its shape is what matters, the number stands beside it.

interface Props {
  values: readonly (number | null)[];
  width?: number;
  height?: number;
  label: string;
}

/** The path of a line through the values, scaled to the box. Gaps stay gaps. */
export function sparkPath(
  values: readonly (number | null)[],
  width: number,
  height: number,
): string {
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return "";
  const [least, most] = [Math.min(...known), Math.max(...known)];
  // What moves by less than a twentieth looks flat, as it is.
  const span = Math.max(most - least, Math.abs(most) / 20, 1);
  const middle = (least + most - span) / 2;
  const low = least < 0 ? middle : Math.max(0, middle);
  const step = width / Math.max(1, values.length - 1);
  let path = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (value === null) {
      isDown = false;
      return;
    }
    const y = height - 1 - ((value - low) / span) * (height - 2);
    path += `${isDown ? "L" : "M"}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  });
  return path;
}

export function Spark({ values, width = 96, height = 20, label }: Props) {
  return (
    <svg
      class="spark"
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path d={sparkPath(values, width, height)} />
    </svg>
  );
}
