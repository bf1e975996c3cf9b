const HOUR_MILLIS = 3_600_000;

/** Length of the time that the chart shows. */
export const RANGES = { '1h': 1, '6h': 6, '1d': 24, '7d': 168 } as const;
export type Range = keyof typeof RANGES;
export const isRange = (text: string): text is Range => Object.hasOwn(RANGES, text);

/** Share of the chart before now. */
const PAST_PART = 0.15;
const TICK_HOURS: Record<Range, number> = { '1h': 1 / 6, '6h': 1, '1d': 4, '7d': 24 };

export interface TimeScale {
  from: number;
  to: number;
}

/** The times at both edges of the chart, in milliseconds. */
export function timeScale(now: number, range: Range): TimeScale {
  const length = RANGES[range] * HOUR_MILLIS;
  return { from: now - length * PAST_PART, to: now + length * (1 - PAST_PART) };
}

/** The position of a time in percent of the chart's width, within its edges. */
export function positionOf(at: number, { from, to }: TimeScale): number {
  return Math.min(100, Math.max(0, (100 * (at - from)) / (to - from)));
}

/** Round local times inside the chart, for its labels. */
export function ticksOf({ from, to }: TimeScale, range: Range): number[] {
  const step = TICK_HOURS[range] * HOUR_MILLIS;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - offset) / step) * step + offset;
  return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, n) => first + n * step);
}
