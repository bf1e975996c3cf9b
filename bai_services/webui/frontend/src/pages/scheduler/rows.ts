import type {
  Lane,
  Schedule,
  ScheduledReservation,
  ScheduledSession
} from '../../data/scheduling/schedule';

/** One bar of the chart. */
export interface Bar {
  key: string;
  session: ScheduledSession;
  kind: 'running' | 'reserved' | 'waiting';
  /**
   * Unix times in milliseconds. Without an end, the bar extends to the edge of the chart; without
   * a start, it is at this edge.
   */
  from: number | undefined;
  to: number | undefined;
  /**
   * Resources of the session: `0.5` of this device, or `4 CPU` of this agent; empty for `waiting`.
   */
  amount: string;
}

/** One row of the chart: a device, an agent, or a pending session without a placement. */
export interface Row {
  key: string;
  agent: string;
  lane: Lane | undefined;
  bars: Bar[];
  /** The advance reservations that hold the agent. */
  held: ScheduledReservation[];
}

const MAX_WAITING_ROWS = 20;

const laneKey = (agent: string, device: string) => `${agent}/${device}`;
const millis = (text: string | null) => (text === null ? undefined : Date.parse(text));

/**
 * Whether a reservation is shown in the row of a device or an agent. The reservation of a part is
 * shown on the devices of the booked families; without devices, on the agent.
 */
function isShownOn(one: ScheduledReservation, lane: Lane): boolean {
  if (!one.agents.includes(lane.agent_id)) {
    return false;
  }
  const families = Object.keys(one.resources).flatMap(slot => slot.split('.').slice(0, -1));
  if (one.whole_machines) {
    return true;
  }
  return lane.device_id ? families.includes(lane.family) : families.length === 0;
}

/**
 * Return the rows of devices and of agents. The row of an agent with devices is omitted if it has
 * no bar and no reserved part. One row follows for each pending session that has an estimated start but no placement, at
 * most `MAX_WAITING_ROWS`.
 */
export function rowsOf(schedule: Schedule): Row[] {
  const now = Date.parse(schedule.at);
  const rows = new Map<string, Row>(
    schedule.lanes.map(lane => {
      const key = laneKey(lane.agent_id, lane.device_id);
      const held = schedule.reservations.filter(one => isShownOn(one, lane));
      return [key, { key, agent: lane.agent_id, lane, bars: [], held }];
    })
  );
  const add = (session: ScheduledSession, kind: 'running' | 'reserved', from?: number) => {
    session.kernels.forEach((kernel, index) => {
      const parts = kernel.devices.length
        ? kernel.devices.map(({ device_id, amount }) => ({ device: device_id, amount }))
        : [{ device: '', amount: `${kernel.slots['cpu'] ?? '0'} CPU` }];
      for (const { device, amount } of parts) {
        const key = `${kind}-${session.session?.id ?? session.position ?? from}-${index}-${device}`;
        rows.get(laneKey(kernel.agent_id, device))?.bars.push({
          key,
          session,
          kind,
          from,
          to: millis(session.ends_at),
          amount
        });
      }
    });
  };
  schedule.running.forEach(session => add(session, 'running', millis(session.starts_at) ?? now));
  const withoutPlace: Row[] = [];
  for (const session of schedule.waiting) {
    const from = millis(session.starts_at);
    if (session.kernels.length) {
      add(session, 'reserved', from);
    } else if (from !== undefined && withoutPlace.length < MAX_WAITING_ROWS) {
      const key = `waiting-${session.position}`;
      const bar = { key, session, kind: 'waiting' as const, from, to: millis(session.ends_at) };
      withoutPlace.push({
        key,
        agent: '',
        lane: undefined,
        bars: [{ ...bar, amount: '' }],
        held: []
      });
    }
  }
  // Hide the row of an agent that has devices if the row has no bars and no reserved part.
  const hasPart = (row: Row) => row.held.some(one => !one.whole_machines);
  const isUsed = (row: Row) => row.lane?.device_id !== '' || row.bars.length > 0 || hasPart(row);
  const hasDevices = new Set(
    schedule.lanes.filter(lane => lane.device_id).map(lane => lane.agent_id)
  );
  return [
    ...[...rows.values()].filter(row => isUsed(row) || !hasDevices.has(row.agent)),
    ...withoutPlace
  ];
}
