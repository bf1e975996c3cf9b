import { expect, test } from 'vitest';
import { changedHosts } from '../src/pages/storage/permissions';

const item = { allowed_vfolder_hosts: { local: ['upload-file'], fast: ['upload-file'] } };

test('a granted permission is added on one host only', () => {
  expect(changedHosts(item, 'local', 'download-file', true)).toEqual({
    allowed_vfolder_hosts: { fast: ['upload-file'], local: ['upload-file', 'download-file'] }
  });
});

test('a host without permissions is left out of the request', () => {
  expect(changedHosts(item, 'local', 'upload-file', false)).toEqual({
    allowed_vfolder_hosts: { fast: ['upload-file'] }
  });
});
