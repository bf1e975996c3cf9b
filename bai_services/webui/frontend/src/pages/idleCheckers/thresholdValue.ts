import { formatBytes } from '../../components/bytes';

const RATES: readonly string[] = ['net', 'io'];

/** A threshold with its unit: "5%", and for network and I/O bytes per second. */
export const thresholdValue = (metric: string, limit: number, language: string) =>
  RATES.includes(metric)
    ? `${formatBytes(limit, language)}/s`
    : `${limit.toLocaleString(language)}%`;
