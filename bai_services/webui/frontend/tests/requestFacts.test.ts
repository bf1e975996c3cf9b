import { expect, test } from 'vitest';
import { labelOf, requestFacts } from '../src/pages/schedules/requestFacts';

test('a requested session is shown as texts, without values of environment variables', () => {
  const request = {
    type: 'batch',
    project: 'p1',
    resources: { cpu: '2', mem: '4g' },
    mounts: [{ vfolder: 'data', path: '/home/work/data', permission: 'ro' }, { vfolder: 'code' }],
    environ: { LEVEL: 'high' },
    cluster_size: 2,
    preset: null,
    command: ['python', 'train.py']
  };
  expect(requestFacts(request, new Map([['p1', 'default']]))).toEqual([
    ['type', 'batch'],
    ['project', 'default'],
    ['resources', 'cpu 2, mem 4 GiB'],
    ['mounts', 'data → /home/work/data (ro), code'],
    ['environ', 'LEVEL'],
    ['cluster_size', '2'],
    ['command', 'python, train.py']
  ]);
});

test('labels are texts of the session page or of the form', () => {
  expect(labelOf('resource_group')).toBe('sessions.resource-group');
  expect(labelOf('mounts')).toBe('launcher.section-folders');
});
