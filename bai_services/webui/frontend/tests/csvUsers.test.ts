import { expect, test } from 'vitest';
import { parseCsv } from '../src/components/list/csvText';
import { markTaken, newUser, readUsers, TEMPLATE } from '../src/pages/users/csvUsers';

const cellsOf = (text: string) => parseCsv(text).map(({ cells }) => cells);

test.each([
  ['quotes, commas and line breaks in a cell', 'a,"b, ""c""\nd"\r\n', [['a', 'b, "c"\nd']]],
  [
    'a byte order mark and empty rows',
    '\uFEFFa,b\n\n,\nc,d',
    [
      ['a', 'b'],
      ['c', 'd']
    ]
  ],
  ['an empty last cell', 'a,', [['a', '']]],
  ['an empty file', '', []]
])('a CSV file may have %s', (_, text, rows) => {
  expect(cellsOf(text)).toEqual(rows);
});

test('a quote that is not closed is an error with the number of its row', () => {
  expect(() => parseCsv('a\n"b')).toThrow('2');
});

test('the case and order of column titles do not matter, and defaults fill empty cells', () => {
  const text = 'UserName,EMAIL,domain_name,project\nada,ada@example.com,,"ml;web"';
  const [row] = readUsers(text, { domain: 'research', role: 'user' }).rows;
  expect(row?.problems).toEqual([]);
  expect(row && newUser(row)).toEqual({
    username: 'ada',
    email: 'ada@example.com',
    domain: 'research',
    role: 'user',
    projects: ['ml', 'web']
  });
});

test.each([
  ['ada,', ['email']],
  ['ada,ada.example.com', ['email']],
  [',ada@example.com', ['username']],
  ['ada,ada@example.com,maybe', ['boolean']],
  ['ada,ada@example.com,no,more', ['cells']]
])('row %s has problems %s', (line, problems) => {
  const file = readUsers(`username,email,need_password_change\n${line}`);
  expect(file.rows.map(row => row.problems)).toEqual([problems]);
});

test('a name or an address that occurs twice is refused the second time', () => {
  const file = readUsers('username,email\nada,a@b.c\nADA,d@e.f\neve,A@b.c');
  expect(file.rows.map(row => row.problems)).toEqual([[], ['duplicate'], ['duplicate']]);
});

test('a row with the name or address of an existing user is marked, with its other problems', () => {
  const { rows } = readUsers('username,email\nAda,a@b.c\neve,E@b.c\nbob,b@b.c\nada,none');
  const marked = markTaken(rows, new Set(['ada', 'e@b.c']));
  expect(marked.map(row => row.problems)).toEqual([
    ['taken'],
    ['taken'],
    [],
    ['email', 'duplicate', 'taken']
  ]);
});

test('unknown and missing columns are named', () => {
  const file = readUsers('username,shoe size\nada,38');
  expect([file.unknown, file.missing]).toEqual([['shoe size'], ['email']]);
});

test('the template is a valid file', () => {
  const { rows, unknown, missing } = readUsers(TEMPLATE);
  expect([rows[0]?.problems, unknown, missing]).toEqual([[], [], []]);
});
