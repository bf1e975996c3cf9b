import { expect, test } from 'vitest';
import { appsOf, labelOf, partsOf } from '../src/pages/images/imageApps';

test('the apps of a label are read and written', () => {
  const label = 'lab:http:8090,triton:http:[8000,8001]';
  expect(appsOf(label)).toEqual([
    { name: 'lab', protocol: 'http', ports: '8090' },
    { name: 'triton', protocol: 'http', ports: '8000,8001' }
  ]);
  expect(labelOf(appsOf(label))).toBe(label);
  expect(appsOf('')).toEqual([]);
});

test.each([
  ['cr.example.com:5000/stable/python:3.12', 'cr.example.com:5000', '3.12'],
  ['stable/python:3.12', '', '3.12'],
  ['python', '', '']
])('registry and tag of %s are found', (name, registry, tag) => {
  expect(partsOf(name)).toEqual({ registry, tag });
});
