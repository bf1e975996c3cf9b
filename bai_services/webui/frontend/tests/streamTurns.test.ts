import { expect, test } from 'vitest';
import { takeTurns, type Locks } from '../src/data/streamTurns';

class Tab {
  hidden = false;
  turns: boolean[] = [];
  private listener: () => void = () => undefined;

  constructor(locks: Locks | undefined, hidden = false) {
    this.hidden = hidden;
    takeTurns(this, locks, hasTurn => this.turns.push(hasTurn));
  }

  addEventListener(_: 'visibilitychange', listener: () => void) {
    this.listener = listener;
  }

  async show(isShown: boolean) {
    this.hidden = !isShown;
    this.listener();
    await settled();
  }

  get hasStream() {
    return this.turns.at(-1) ?? false;
  }
}

const settled = () => new Promise(resolve => setTimeout(resolve));

test('visible tabs have an event stream, and of the hidden tabs only one', async () => {
  // Node has the Web Locks of browsers.
  const locks = navigator.locks as unknown as Locks;
  const tabs = [new Tab(locks), new Tab(locks, true), new Tab(locks, true), new Tab(locks)];
  const streams = () => tabs.map(tab => tab.hasStream);
  await settled();
  expect(streams()).toEqual([true, true, false, true]);
  await tabs[0]?.show(false);
  expect(streams()).toEqual([false, true, false, true]);
  // The next hidden tab takes over.
  await tabs[1]?.show(true);
  expect(streams()).toEqual([false, true, true, true]);
  await tabs[0]?.show(true);
  expect(streams()).toEqual([true, true, true, true]);
  await tabs[1]?.show(false);
  expect(streams()).toEqual([true, false, true, true]);
});

test('without locks, hidden tabs have no event stream', async () => {
  const tab = new Tab(undefined);
  await tab.show(false);
  await tab.show(true);
  expect(tab.turns).toEqual([true, false, true]);
});
