import { parseCsv } from '../../components/list/csvText';
import type { Schemas } from '../../data/client';

export type NewUser = Schemas['NewUser'];

export const COLUMNS = [
  'email',
  'username',
  'password',
  'full_name',
  'role',
  'status',
  'domain',
  'description',
  'need_password_change',
  'resource_policy',
  'projects'
] as const;
export type Column = (typeof COLUMNS)[number];

/** Values for cells that are empty. */
export type Defaults = Partial<Record<Column, string>>;

/** Problem of a row; each has a text `user-import.problem-…`. */
export type Problem = 'email' | 'username' | 'boolean' | 'duplicate' | 'cells' | 'taken';

export interface ImportRow {
  /** Number of the row in the file; the header is row 1. */
  number: number;
  cells: Partial<Record<Column, string>>;
  problems: Problem[];
}

/** A parsed file of users. */
export interface UserFile {
  rows: ImportRow[];
  /** Titles of columns that are not fields of users. */
  unknown: string[];
  /** Required columns that the file lacks. */
  missing: Column[];
}

const REQUIRED: readonly Column[] = ['email', 'username'];
// Maps, because an object inherits keys such as `constructor`.
const ALIASES = new Map<string, Column>([
  ['domain_name', 'domain'],
  ['project', 'projects']
]);
const BOOLEANS = new Map([
  ['true', true],
  ['yes', true],
  ['1', true],
  ['false', false],
  ['no', false],
  ['0', false]
]);
const columnOf = (title: string) => {
  const name = title.toLowerCase();
  return ALIASES.get(name) ?? COLUMNS.find(column => column === name);
};

/** Parse a file of users, and make the checks that need no server. */
export function readUsers(text: string, defaults: Defaults = {}): UserFile {
  const [header, ...lines] = parseCsv(text);
  const titles = header?.cells ?? [];
  const columns = titles.map(columnOf);
  const rows = lines.map(({ number, cells }) => {
    const given = columns.flatMap((column, place) =>
      column && cells[place] ? [[column, cells[place]] as const] : []
    );
    const row = { number, cells: { ...defaults, ...Object.fromEntries(given) }, problems: [] };
    return { ...row, problems: problemsOf(row.cells, cells.length > titles.length) };
  });
  return {
    rows: markDuplicates(rows),
    unknown: titles.filter((title, place) => title !== '' && columns[place] === undefined),
    missing: REQUIRED.filter(column => !columns.includes(column))
  };
}

function problemsOf(cells: ImportRow['cells'], hasMoreCells: boolean): Problem[] {
  const flag = cells.need_password_change?.toLowerCase();
  return [
    ...(cells.email?.includes('@') ? [] : ['email' as const]),
    ...(cells.username ? [] : ['username' as const]),
    ...(flag === undefined || BOOLEANS.has(flag) ? [] : ['boolean' as const]),
    ...(hasMoreCells ? ['cells' as const] : [])
  ];
}

/** The e-mail address and the user name of a row in lower case, as the server stores them. */
const namesOf = ({ cells }: ImportRow) =>
  [cells.email, cells.username].flatMap(name => (name ? [name.toLowerCase()] : []));

/** Mark the rows whose user name or e-mail address is in `taken`. */
export const markTaken = (rows: readonly ImportRow[], taken: ReadonlySet<string>): ImportRow[] =>
  rows.map(row =>
    namesOf(row).some(name => taken.has(name))
      ? { ...row, problems: [...row.problems, 'taken' as const] }
      : row
  );

function markDuplicates(rows: ImportRow[]): ImportRow[] {
  const seen = new Set<string>();
  return rows.map(row => {
    const names = namesOf(row);
    const isDuplicate = names.some(name => seen.has(name));
    names.forEach(name => seen.add(name));
    return isDuplicate ? { ...row, problems: [...row.problems, 'duplicate' as const] } : row;
  });
}

/** The request that creates the user of a valid row. */
export function newUser({ cells }: ImportRow): NewUser {
  const { need_password_change: flag, projects, ...texts } = cells;
  return {
    ...texts,
    ...(flag === undefined ? {} : { need_password_change: BOOLEANS.get(flag.toLowerCase()) }),
    ...(projects === undefined ? {} : { projects: projects.split(/[\s;]+/).filter(Boolean) })
  } as NewUser;
}

/** A CSV template with the header and one example row. */
export const TEMPLATE = `${COLUMNS.join(',')}\r\nada@example.com,ada,,Ada Lovelace,user,active,,,true,,\r\n`;
