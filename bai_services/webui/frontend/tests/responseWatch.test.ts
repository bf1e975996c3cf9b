import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ResponseWatch } from '../src/data/responseWatch';

const MILLIS = 3_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function watched() {
  const onSilence = vi.fn();
  return { watch: new ResponseWatch(MILLIS, onSilence), onSilence };
}

test('a request without a response is noticed once', () => {
  const { watch, onSilence } = watched();
  watch.sent();
  vi.advanceTimersByTime(MILLIS - 1);
  expect(onSilence).not.toHaveBeenCalled();
  vi.advanceTimersByTime(MILLIS);
  expect(onSilence).toHaveBeenCalledTimes(1);
});

test('nothing is noticed after the last response', () => {
  const { watch, onSilence } = watched();
  watch.sent();
  watch.ended(true);
  vi.advanceTimersByTime(2 * MILLIS);
  expect(onSilence).not.toHaveBeenCalled();
});

test('a response restarts the timeout of the other requests, a cancelled request does not', () => {
  const { watch, onSilence } = watched();
  watch.sent();
  watch.sent();
  watch.sent();
  vi.advanceTimersByTime(MILLIS - 1);
  watch.ended(true);
  vi.advanceTimersByTime(MILLIS - 1);
  watch.ended(false);
  expect(onSilence).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(onSilence).toHaveBeenCalledTimes(1);
});
