import type { IdleReplay } from '../../data/sessions/idleReplays';

type Stop = Pick<IdleReplay['stops'][number], 'stopped_at' | 'ended_at'>;

/** The hours that a replay would have freed, of the hours of all judged sessions. */
interface Hours {
  freed: number;
  judged: number;
}

/** How many seconds earlier than its real end a session would have been stopped. */
export const savedSeconds = ({ stopped_at: stop, ended_at: end }: Stop) =>
  Math.max(0, (Date.parse(end) - Date.parse(stop)) / 1000);

/**
 * The device and core hours of a replay with their texts; without device hours if no session had
 * devices.
 */
export function totalsOf(
  result: Pick<
    IdleReplay,
    'device_hours_freed' | 'judged_device_hours' | 'core_hours_freed' | 'judged_core_hours'
  >
) {
  const devices = {
    freed: result.device_hours_freed,
    judged: result.judged_device_hours,
    hours: 'device_hours',
    title: 'idle-checkers.freed',
    share: 'idle-checkers.freed-share',
    column: 'idle-checkers.device-hours'
  } as const;
  const cores = {
    freed: result.core_hours_freed,
    judged: result.judged_core_hours,
    hours: 'core_hours',
    title: 'idle-checkers.freed-cores',
    share: 'idle-checkers.freed-cores-share',
    column: 'idle-checkers.core-hours'
  } as const;
  return devices.judged > 0 ? [devices, cores] : [cores];
}

/** The freed part of the hours in percent; one decimal if it is small. */
export function freedPercent({ freed, judged }: Hours): number {
  const percent = judged > 0 ? (100 * freed) / judged : 0;
  return percent < 10 ? Math.round(10 * percent) / 10 : Math.round(percent);
}
