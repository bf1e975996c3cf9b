import { expect, test } from 'vitest';
import type { SlotLimit } from '../src/data/sessions/launch';
import { presetState } from '../src/pages/launcher/presets';

const limit = (allowed: string | null, largest: string): SlotLimit => ({
  min: '0',
  max: largest,
  now: '0',
  allowed,
  largest,
  step: '1',
  in_force: [],
  enforcement: null
});
const LIMITS = { cpu: limit('4', '16'), mem: limit(null, '8g') };

test.each([
  [{ cpu: '8' }, true, 'now'],
  [{ cpu: '4', mem: '8192m' }, false, 'waits'],
  [{ cpu: '5', mem: '1g' }, false, 'over-limit'],
  [{ cpu: '1', mem: '9g' }, false, 'too-large'],
  [{ cpu: '1', 'cuda.device': '1' }, false, 'waits']
])('a preset with %o and allocatable=%s has the state %s', (resources, allocatable, state) => {
  expect(presetState({ resources, allocatable }, LIMITS)).toBe(state);
});
