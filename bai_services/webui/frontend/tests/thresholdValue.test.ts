import { expect, test } from 'vitest';
import { thresholdValue } from '../src/pages/idleCheckers/thresholdValue';

test.each([
  ['cpu_util', 5, '5%'],
  ['cuda_mem', 30, '30%'],
  ['net', 1024, '1 KiB/s'],
  ['io', 500, '500 B/s']
])('a threshold of %s of %d is shown as %s', (metric, limit, text) => {
  expect(thresholdValue(metric, limit, 'en')).toBe(text);
});
