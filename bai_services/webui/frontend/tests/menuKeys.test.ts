import { expect, test, vi } from 'vitest';
import { onMenuKeyDown } from '../src/components/menuKeys';

function press(key: string, link: { click: () => void } | null) {
  const preventDefault = vi.fn();
  const event = { key, preventDefault, target: { querySelector: () => link } };
  onMenuKeyDown(event as unknown as Parameters<typeof onMenuKeyDown>[0]);
  return preventDefault;
}

test('Enter in a menu presses no other button, and follows the link of an entry', () => {
  const link = { click: vi.fn() };
  expect(press('Enter', link)).toHaveBeenCalledOnce();
  expect(link.click).toHaveBeenCalledOnce();
  expect(press('Enter', null)).toHaveBeenCalledOnce();
});

test('other keys keep their effect', () => {
  const link = { click: vi.fn() };
  expect(press('ArrowDown', link)).not.toHaveBeenCalled();
  expect(link.click).not.toHaveBeenCalled();
});
