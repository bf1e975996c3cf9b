import { expect, test } from 'vitest';
import type { Schedule, ScheduledSession } from '../src/data/scheduling/schedule';
import { rowsOf } from '../src/pages/scheduler/rows';
import { positionOf, ticksOf, timeScale } from '../src/pages/scheduler/timeScale';

const NOW = '2026-01-02T12:00:00+00:00';

const session = (changes: Partial<ScheduledSession>): ScheduledSession => ({
  session: { id: 'id', name: 'one', owner: 'ann', project: 'p' },
  kernels: [],
  starts_at: NOW,
  ends_at: null,
  certainty: 'unknown',
  position: null,
  priority: null,
  reason: '',
  reason_coded: null,
  standing: [],
  ...changes
});

const lane = (agent_id: string, device_id = '') => ({ agent_id, device_id, family: '', model: '' });

const schedule: Schedule = {
  resource_group: 'default',
  is_complete: true,
  at: NOW,
  order: 'fifo',
  lanes: [lane('a'), lane('a', 'gpu0'), lane('a', 'gpu1'), lane('b')],
  running: [
    session({
      kernels: [
        {
          agent_id: 'a',
          slots: { cpu: '1' },
          devices: [{ device_id: 'gpu0', slot: 'cuda.shares', amount: '0.5' }]
        }
      ]
    }),
    session({ kernels: [{ agent_id: 'b', slots: { cpu: '2' }, devices: [] }] })
  ],
  waiting: [
    session({
      position: 1,
      kernels: [
        {
          agent_id: 'a',
          slots: { cpu: '1' },
          devices: [{ device_id: 'gpu1', slot: 'cuda.shares', amount: '1' }]
        }
      ]
    }),
    session({ position: 2, starts_at: '2026-01-02T13:00:00+00:00' }),
    session({ position: 3, starts_at: null })
  ],
  running_count: 2,
  waiting_count: 3,
  reservations: [
    {
      id: 'r1',
      name: 'course',
      project: 'p',
      agents: ['b'],
      resources: { cpu: '1' },
      whole_machines: true,
      starts_at: NOW,
      ends_at: '2026-01-02T14:00:00+00:00'
    }
  ]
};

test('devices, agents without devices, and unplaced sessions with a start time have rows', () => {
  const rows = rowsOf(schedule);
  expect(rows.map(row => row.key)).toEqual(['a/gpu0', 'a/gpu1', 'b/', 'waiting-2']);
  expect(rows.map(row => row.bars.map(bar => [bar.kind, bar.amount]))).toEqual([
    [['running', '0.5']],
    [['reserved', '1']],
    [['running', '2 CPU']],
    [['waiting', '']]
  ]);
});

test('positions stay within the chart', () => {
  const now = Date.parse(NOW);
  const scale = timeScale(now, '1h');
  expect(positionOf(now, scale)).toBeCloseTo(15);
  expect(positionOf(0, scale)).toBe(0);
  expect(positionOf(now * 2, scale)).toBe(100);
  const ticks = ticksOf(scale, '1h');
  expect(ticks).toHaveLength(6);
  expect(ticks.every(at => at >= scale.from && at <= scale.to && at % 600_000 === 0)).toBe(true);
});

test.each([
  [{ 'cuda.device': '1', cpu: '2' }, ['a/gpu0', 'a/gpu1']],
  [{ 'rocm.device': '1' }, []],
  [{ cpu: '2' }, ['a/']]
])('a reserved part %j is shown on the devices of its families, or on the agent', (parts, keys) => {
  const lanes = schedule.lanes.map(each => ({ ...each, family: each.device_id && 'cuda' }));
  const reservations = schedule.reservations.map(one => ({
    ...one,
    agents: ['a'],
    resources: parts,
    whole_machines: false
  }));
  const rows = rowsOf({ ...schedule, lanes, reservations });
  expect(rows.filter(({ held }) => held.length).map(({ key }) => key)).toEqual(keys);
});

test('an advance reservation is shown on each row of its agents', () => {
  const rows = rowsOf(schedule).map(({ key, held }) => [key, held.map(({ name }) => name)]);
  expect(rows.filter(([, names]) => names?.length)).toEqual([['b/', ['course']]]);
});
