import { expect, test } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';
import { amountOf } from '../src/pages/sessions/list/amountOf';

const elasticity = {
  minimum: { cpu: '1', mem: '1073741824' },
  preferred: { cpu: '4', mem: '1073741824' }
};
const requested = { cpu: '1', mem: '1073741824' };
const session = (values: object) => ({ requested, elasticity, ...values }) as unknown as Session;

test.each([
  ['PENDING', elasticity, 'cpu', '1 – 4'],
  ['PENDING', elasticity, 'mem', '1 GiB'],
  ['PENDING', elasticity, 'cuda.shares', '–'],
  ['RUNNING', elasticity, 'cpu', '1'],
  ['PENDING', null, 'cpu', '1']
])('a %s session with elasticity %o shows %s %s', (status, sizes, slot, text) => {
  expect(amountOf(session({ status, elasticity: sizes }), slot)).toBe(text);
});
