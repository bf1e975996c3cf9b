import i18next from 'i18next';
import { beforeAll, expect, test, vi } from 'vitest';
import { checkOf, labelled } from '../src/components/entities/rules';
import en from '../src/i18n/en';
import { IDLE_ENTITIES } from '../src/pages/idleCheckers/entities';

vi.mock('../src/config', () => ({ config: { masksUsers: false } }));

beforeAll(() => i18next.init({ lng: 'en', resources: { en: { translation: en } } }));

const [CHECKERS] = IDLE_ENTITIES;
const fields = CHECKERS?.fields ?? [];

/** The problem of a value in the form of an idle checker. */
function problemOf(key: string, given: unknown, type = 'utilization') {
  const field = fields.find(one => one.key === key);
  return field && checkOf(field, { type }, i18next.t)?.(given);
}

test.each([
  ['utilization', '2 days', 'From 1min to 1d'],
  ['utilization', '30', 'From 1min to 1d'],
  ['utilization', '1d', undefined],
  ['network', '2 days', undefined],
  ['session-lifetime', '11y', 'A duration, such as 30min, 2h or 1h 30min']
])('the period of a %s checker can be %s: %s', (type, given, problem) => {
  const found = problemOf('max_seconds', given, type);
  expect(found?.slice(0, problem?.length)).toBe(problem);
});

test.each([
  ['cpu_util=5 net=5000', undefined],
  ['cpu_util=0', 'cpu_util: From 1 to 100'],
  ['cpu_util=5 cuda_mem=101', 'cuda_mem: From 1 to 100'],
  ['cpu_util=5%', 'cpu_util=5% is not a name and a whole number'],
  ['cpu_util=5 net=10KB', 'net=10KB is not a name and a whole number'],
  ['cpu_util', 'cpu_util is not a name and a whole number']
])('thresholds %s: %s', (given, problem) => {
  expect(problemOf('thresholds', given)?.slice(0, problem?.length)).toBe(problem);
});

test.each([
  ['idle_percent', 101, 'From 1 to 100'],
  ['idle_percent', 50, undefined],
  ['idle_percent', undefined, undefined],
  ['max_keep_alives', 1001, 'From 0 to 1000'],
  ['initial_grace_seconds', '', undefined],
  ['warnings_seconds', ['10min', '2d'], 'From 0 to 1d'],
  ['warnings_seconds', [], undefined]
])('%s = %s: %s', (key, given, problem) => {
  expect(problemOf(key, given)).toBe(problem);
});

test('a message of the server names fields by their labels', () => {
  const message = 'a warning must be shorter than max_seconds (5min): set shorter warnings_seconds';
  expect(labelled(message, fields, ({ key }) => key.toUpperCase())).toBe(
    'a warning must be shorter than “MAX_SECONDS” (5min): set shorter “WARNINGS_SECONDS”'
  );
  expect(labelled('my_max_seconds, the name', fields, () => 'X')).toBe('my_max_seconds, the name');
});
