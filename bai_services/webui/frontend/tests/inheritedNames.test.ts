/** User-supplied names, such as `constructor`, that are also inherited keys of objects. */
import type { TFunction } from 'i18next';
import { describe, expect, test, vi } from 'vitest';
import type { SessionApp } from '../src/data/sessions/apps';
import type { SessionPreview } from '../src/data/sessions/launch';
import { imageTypeOf, kindOf } from '../src/pages/data/preview/kinds';
import { stepsWithProblems } from '../src/pages/launcher/steps';
import { changedHosts, grantedOn } from '../src/pages/storage/permissions';
import { newUser, readUsers } from '../src/pages/users/csvUsers';

vi.stubGlobal('document', { querySelector: () => ({ content: '{"api":"/api","xsrfToken":""}' }) });
const { appTitle } = await import('../src/data/sessions/apps');
const { languageOf } = await import('../src/i18n');

describe.each(['constructor', '__proto__', 'toString', 'hasOwnProperty'])('the name %s', name => {
  test('as a file extension means a text file', () => {
    expect(kindOf(`file.${name}`)).toBe('text');
    expect(imageTypeOf(`file.${name}`)).toBe('');
  });

  test('as a column of users is unknown', () => {
    const file = readUsers(`username,email,${name}\nada,ada@example.com,x`);
    expect(file.unknown).toEqual([name]);
    const [row] = file.rows;
    expect(row && newUser(row)).toEqual({ username: 'ada', email: 'ada@example.com' });
  });

  test('is neither true nor false in a column of users', () => {
    const file = readUsers(`username,email,need_password_change\nada,ada@example.com,${name}`);
    expect(file.rows.map(row => row.problems)).toEqual([['boolean']]);
  });

  test('as the name of an app is also its title', () => {
    const app = { name, title: name, port: 8080 } as SessionApp;
    expect(appTitle((key => key) as TFunction, app)).toBe(name);
  });

  test('is not a language', () => {
    expect(languageOf(name)).toBe('en');
  });

  test('as a field of a request belongs to the resources', () => {
    const preview = { problems: [{ field: name, problem: 'unknown' }] } as SessionPreview;
    expect([...stepsWithProblems(preview)]).toEqual(['resources']);
  });

  test('as a storage host has the permissions that were granted', () => {
    expect(grantedOn({ allowed_vfolder_hosts: {} }, name)).toEqual([]);
    const { allowed_vfolder_hosts: hosts } = changedHosts({}, name, 'upload-file', true);
    expect(Object.entries(hosts)).toEqual([[name, ['upload-file']]]);
    expect(grantedOn({ allowed_vfolder_hosts: hosts }, name)).toEqual(['upload-file']);
  });
});
