const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/**
 * Format a number of bytes with a suitable binary unit, for example "1.5 GiB".
 */
export function formatBytes(bytes: number, language: string): string {
  const power = bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10);
  const index = Math.min(power, UNITS.length - 1);
  const number = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
  return `${number.format(bytes / 1024 ** index)} ${UNITS[index] ?? ''}`;
}
