import type { IdleReplay } from '../../data/sessions/idleReplays';

type Stop = Pick<IdleReplay['stops'][number], 'stopped_at' | 'ended_at'>;

/** How many seconds earlier than its real end a session would have been stopped. */
export const savedSeconds = ({ stopped_at: stop, ended_at: end }: Stop) =>
  Math.max(0, (Date.parse(end) - Date.parse(stop)) / 1000);

/** The freed part of the device hours in percent; one decimal if it is small. */
export function freedPercent(
  result: Pick<IdleReplay, 'device_hours_freed' | 'judged_device_hours'>
): number {
  const { device_hours_freed: freed, judged_device_hours: total } = result;
  const percent = total > 0 ? (100 * freed) / total : 0;
  return percent < 10 ? Math.round(10 * percent) / 10 : Math.round(percent);
}
