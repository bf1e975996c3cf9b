const HOUR_MILLIS = 3_600_000;

/** Selectable lengths of the period that the chart shows, in hours. */
export const RANGES = { '1h': 1, '6h': 6, '1d': 24, '7d': 168 } as const;
export type Range = keyof typeof RANGES;
export const isRange = (text: string): text is Range => Object.hasOwn(RANGES, text);

/** Fraction of the chart that shows the past. */
const PAST_FRACTION = 0.15;
const TICK_HOURS: Record<Range, number> = { '1h': 1 / 6, '6h': 1, '1d': 4, '7d': 24 };

export interface TimeScale {
  from: number;
  to: number;
}

/** The times at both edges of the chart, in milliseconds. */
export function timeScale(now: number, range: Range): TimeScale {
  const length = RANGES[range] * HOUR_MILLIS;
  return { from: now - length * PAST_FRACTION, to: now + length * (1 - PAST_FRACTION) };
}

/** The position of a time in percent of the chart's width, limited to 0 to 100. */
export function positionOf(at: number, { from, to }: TimeScale): number {
  return Math.min(100, Math.max(0, (100 * (at - from)) / (to - from)));
}

/** The labeled times of the axis: multiples of the tick length in local time. */
export function ticksOf({ from, to }: TimeScale, range: Range): number[] {
  const step = TICK_HOURS[range] * HOUR_MILLIS;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - offset) / step) * step + offset;
  return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, n) => first + n * step);
}
