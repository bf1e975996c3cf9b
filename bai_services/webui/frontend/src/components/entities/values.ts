import dayjs, { isDayjs } from 'dayjs';
import type { Item } from '../../data/entities';
import { secondsOf, spanText } from '../span';
import type { Field } from './entity';

type Slots = Record<string, string>;

/** Format quantities: `{cpu: '8', mem: '16g'}` becomes `cpu=8 mem=16g`. */
export const slotsToText = (slots: unknown) =>
  Object.entries((slots ?? {}) as Slots)
    .map(([slot, quantity]) => `${slot}=${quantity}`)
    .join(' ');

/** Parse quantities; undefined if a part is not `SLOT=QUANTITY`. */
export function textToSlots(text: string): Slots | undefined {
  const parts = text.split(/[\s,]+/).filter(part => part !== '');
  const pairs = parts.map(part => part.split('='));
  if (pairs.some(pair => pair.length !== 2 || pair.includes(''))) {
    return undefined;
  }
  return Object.fromEntries(pairs as [string, string][]);
}

/** Parse whole numbers by name; undefined if a part is not `NAME=NUMBER`. */
export function textToNumbers(text: string): Record<string, number> | undefined {
  const entries = Object.entries(textToSlots(text) ?? { invalid: '' });
  return entries.every(([, number]) => /^\d{1,15}$/.test(number))
    ? Object.fromEntries(entries.map(([name, number]) => [name, Number(number)]))
    : undefined;
}

/**
 * Format hosts with permissions, one per line: `{local: ['mount', 'create']}` becomes `local: mount
 * create`.
 */
export const hostsToText = (hosts: unknown) =>
  Object.entries((hosts ?? {}) as Record<string, string[]>)
    .map(([host, permissions]) => `${host}: ${permissions.join(' ')}`)
    .join('\n');

export function textToHosts(text: string): Record<string, string[]> {
  const lines = text.split('\n').filter(line => line.trim() !== '');
  return Object.fromEntries(
    lines.map(line => {
      const [host = '', permissions = ''] = line.split(/:(.*)/s);
      return [host.trim(), permissions.split(/[\s,]+/).filter(word => word !== '')];
    })
  );
}

/**
 * Return the name of a list item that is an object, such as a project of a user. Return any other
 * item unchanged.
 */
const nameOf = (word: unknown) =>
  typeof word === 'object' && word !== null && 'name' in word ? word.name : word;

/** Convert the value of a field to the value of its control. */
export function toControl(field: Field, value: unknown): unknown {
  switch (field.kind) {
    case 'slots':
    case 'numbers':
      return slotsToText(value);
    case 'hosts':
      return hostsToText(value);
    case 'json':
      return value === null || value === undefined ? '' : JSON.stringify(value, null, 2);
    case 'duration':
      return typeof value === 'number' ? spanText(value) : undefined;
    case 'durations':
      return ((value ?? []) as number[]).map(spanText);
    case 'words':
      return ((value ?? []) as unknown[]).map(nameOf);
    case 'choices':
      return value ?? [];
    case 'time':
      return typeof value === 'string' ? dayjs(value) : undefined;
    default:
      return value ?? undefined;
  }
}

const textOf = (shown: unknown) => (typeof shown === 'string' ? shown : '');

/** Convert the value of a control to the format that the API expects. */
export function fromControl(field: Field, shown: unknown): unknown {
  const isEmpty = shown === undefined || shown === null || shown === '';
  if (isEmpty && field.isNullable) {
    return null;
  }
  switch (field.kind) {
    case 'slots':
      return textToSlots(textOf(shown));
    case 'numbers':
      return textToNumbers(textOf(shown));
    case 'hosts':
      return textToHosts(textOf(shown));
    case 'json':
      return JSON.parse(isEmpty ? '{}' : textOf(shown)) as unknown;
    case 'words':
      return field.isNullable && (shown as string[]).length === 0 ? null : shown;
    case 'duration':
      return isEmpty ? undefined : secondsOf(textOf(shown));
    case 'durations':
      return ((shown ?? []) as string[]).map(secondsOf);
    case 'time':
      return isDayjs(shown) ? shown.toISOString() : shown;
    case 'text':
    case 'lines':
      return shown ?? '';
    default:
      return shown;
  }
}

/** The fields that the user has changed, in the format that the API expects. */
export function changedValues(fields: readonly Field[], item: Item, shown: Item): Item {
  const changed = fields.filter(
    field =>
      JSON.stringify(toControl(field, item[field.key]) ?? null) !==
      JSON.stringify(shown[field.key] ?? (field.kind === 'text' ? '' : null))
  );
  // An empty password is not sent: the stored one is never shown.
  const isKept = (field: Field) =>
    (field.kind === 'text' || field.kind === 'password') && !shown[field.key] && !item[field.key];
  return Object.fromEntries(
    changed
      .filter(field => !isKept(field))
      .map(field => [field.key, fromControl(field, shown[field.key])])
  );
}

/** The fields of a new object that the user has filled in. */
export function newValues(fields: readonly Field[], shown: Item): Item {
  const filled = fields.filter(field => {
    const value = shown[field.key];
    const isEmptyList = Array.isArray(value) && value.length === 0;
    return value !== undefined && value !== null && value !== '' && !isEmptyList;
  });
  return Object.fromEntries(filled.map(field => [field.key, fromControl(field, shown[field.key])]));
}
