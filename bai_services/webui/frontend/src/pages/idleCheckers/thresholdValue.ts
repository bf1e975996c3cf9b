import { formatBytes } from '../../components/bytes';
import type { Bounds } from '../../components/entities/entity';

const RATES: readonly string[] = ['net', 'io'];

/** A threshold with its unit: "5%", and for network and I/O bytes per second. */
export const thresholdValue = (metric: string, limit: number, language: string) =>
  RATES.includes(metric)
    ? `${formatBytes(limit, language)}/s`
    : `${limit.toLocaleString(language)}%`;

/** The valid thresholds of a metric: rates in bytes per second, all other metrics in percent. */
export const thresholdBounds = (metric: string): Bounds => [
  1,
  RATES.includes(metric) ? 2 ** 50 : 100
];
