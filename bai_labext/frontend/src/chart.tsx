import * as React from 'react';

const WIDTH = 120;
const HEIGHT = 28;
const DASH_WIDTH = 8;

/** Sparkline of recent values, with the current value as text; unknown values are skipped. */
export function Chart(props: {
  label: string;
  current: string;
  values: (number | null)[];
  second?: (number | null)[];
  limit?: number;
  level?: string;
}): React.ReactElement {
  const { label, current, values, second = [], limit = 0, level = 'ok' } = props;
  const known = [...values, ...second].filter(value => value !== null);
  const maximum = Math.max(limit, ...known) || 1;
  return (
    <div className={`bai-Chart bai-mod-${level}`} role="img" aria-label={`${label}: ${current}`}>
      <span className="bai-Chart-label">{label}</span>
      <span className="bai-Chart-value">{current}</span>
      {known.length > 0 && (
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          <polygon className="bai-Chart-area" points={area(values, maximum)} />
          <polyline className="bai-Chart-line" points={line(values, maximum)} />
          {second.length > 0 && (
            <polyline className="bai-Chart-second" points={line(second, maximum)} />
          )}
        </svg>
      )}
    </div>
  );
}

function points(values: (number | null)[], maximum: number): [number, number][] {
  const step = WIDTH / Math.max(1, values.length - 1);
  return values.flatMap((value, i): [number, number][] =>
    value === null ? [] : [[i * step, HEIGHT - 1 - (value / maximum) * (HEIGHT - 3)]]
  );
}

function line(values: (number | null)[], maximum: number): string {
  const known = points(values, maximum);
  const [only] = known;
  // Draw a single point, which would be invisible, as a dash.
  const drawn =
    known.length === 1 && only
      ? [Math.max(0, only[0] - DASH_WIDTH), Math.max(DASH_WIDTH, only[0])].map(
          x => [x, only[1]] as const
        )
      : known;
  return drawn.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ');
}

function area(values: (number | null)[], maximum: number): string {
  const upper = line(values, maximum).split(' ');
  const [first] = upper;
  const last = upper.at(-1);
  if (!first || !last) {
    return '';
  }
  const x = (point: string): string => point.split(',')[0] ?? '0';
  return [`${x(first)},${HEIGHT}`, ...upper, `${x(last)},${HEIGHT}`].join(' ');
}
