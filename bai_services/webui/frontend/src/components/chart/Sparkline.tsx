import { theme } from 'antd';

const WIDTH = 60;
const HEIGHT = 16;

interface SparklineProps {
  /** Percentages, oldest first; null: not measured. */
  values: readonly (number | null)[];
  label: string;
}

/** Points of each line, such as "0.0,15.0 30.0,1.0". A gap (null) ends a line and begins another. */
export function linesOf(values: readonly (number | null)[]): string[] {
  const step = WIDTH / Math.max(1, values.length - 1);
  const lines: string[][] = [[]];
  values.forEach((value, index) => {
    if (value === null) {
      lines.push([]);
      return;
    }
    const share = Math.min(100, Math.max(0, value)) / 100;
    const y = 1 + (1 - share) * (HEIGHT - 2);
    lines.at(-1)?.push(`${(index * step).toFixed(1)},${y.toFixed(1)}`);
  });
  return lines.filter(line => line.length > 0).map(line => line.join(' '));
}

/** A small chart of percentages, without axes. */
export function Sparkline({ values, label }: SparklineProps) {
  const { token } = theme.useToken();
  return (
    <svg
      role="img"
      aria-label={label}
      width={WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      style={{ background: token.colorFillTertiary, borderRadius: 2, verticalAlign: 'middle' }}
    >
      {linesOf(values).map(points => (
        <polyline
          key={points}
          points={points}
          fill="none"
          stroke={token.colorPrimary}
          strokeWidth={1.5}
          strokeLinecap="round"
        />
      ))}
    </svg>
  );
}
