import type { FormRule } from 'antd';
import type { TFunction } from 'i18next';
import type { Item } from '../../data/entities';
import { secondsOf, spanText } from '../span';
import { labelKey, type Bounds, type Entity, type Field } from './entity';
import { textToSlots } from './values';

/** Returns the problem of a value that a user has entered, or undefined. */
type Check = (given: unknown) => string | undefined;

/** The rules of a field in a form with the values `shown`. */
export function rulesOf(entity: Entity, field: Field, shown: Item, t: TFunction): FormRule[] {
  const rules: FormRule[] = field.isRequired
    ? [{ required: true, message: t('entities.required') }]
    : [];
  const check = checkOf(field, shown, t);
  if (check) {
    const validator = (_: unknown, given: unknown) => {
      const problem = check(given);
      return problem === undefined ? Promise.resolve() : Promise.reject(new Error(problem));
    };
    return [...rules, { validator }];
  }
  const { warnBelow } = field;
  if (warnBelow !== undefined) {
    const message = t(`${labelKey(entity, field.key)}-low`);
    return [...rules, { type: 'number', min: warnBelow, warningOnly: true, message }];
  }
  return rules;
}

/** The check of the values of a field; undefined: all values are valid. */
export function checkOf(field: Field, shown: Item, t: TFunction): Check | undefined {
  const bounds = field.bounds?.(shown);
  switch (field.kind) {
    case 'slots':
      return text => (textToSlots(textOf(text)) ? undefined : t('entities.hint-slots'));
    case 'numbers':
      return text => numbersProblem(textOf(text), field, t);
    case 'duration':
    case 'durations':
      return given => durationsProblem(given, bounds, t);
    case 'json':
      return text => (isJson(textOf(text)) ? undefined : t('entities.hint-json'));
    default:
      return (
        bounds &&
        (given => (typeof given === 'number' ? boundsProblem(given, bounds, String, t) : undefined))
      );
  }
}

const textOf = (given: unknown) => (typeof given === 'string' ? given : '');

/** The first part of `text` that is not a valid `NAME=NUMBER`. */
function numbersProblem(text: string, { boundsOf }: Field, t: TFunction): string | undefined {
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const [, name = '', digits = ''] = /^([^=]+)=(\d{1,15})$/.exec(part) ?? [];
    if (name === '') {
      return t('entities.no-number', { part });
    }
    const problem =
      boundsOf && boundsProblem(Number(digits), boundsOf(name), String, t, `${name}: `);
    if (problem) {
      return problem;
    }
  }
  return undefined;
}

function durationsProblem(given: unknown, bounds: Bounds | undefined, t: TFunction) {
  for (const text of (Array.isArray(given) ? given : [given]) as (string | undefined)[]) {
    const seconds = secondsOf(text || '0');
    if (seconds === undefined) {
      return t('entities.hint-duration');
    }
    // An empty field has the default value, or is reported by the rule for required fields.
    const problem = text && bounds && boundsProblem(seconds, bounds, spanText, t);
    if (problem) {
      return problem;
    }
  }
  return undefined;
}

function boundsProblem(
  value: number,
  [least, most]: Bounds,
  show: (value: number) => string,
  t: TFunction,
  subject = ''
): string | undefined {
  return value >= least && value <= most
    ? undefined
    : subject + t('entities.out-of-bounds', { least: show(least), most: show(most) });
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text.trim() ? text : '{}');
    return true;
  } catch {
    return false;
  }
}

/**
 * Replace the names of fields in a message of the server by the labels of the form. Names of one
 * word are kept, because they can be words of the sentence.
 */
export const labelled = (
  text: string,
  fields: readonly Field[],
  labelOf: (field: Field) => string
) =>
  fields
    .filter(({ key }) => key.includes('_'))
    .reduce(
      (message, field) =>
        message.replaceAll(new RegExp(`(?<![\\w.])${field.key}(?![\\w.])`, 'g'), () => {
          return `“${labelOf(field)}”`;
        }),
      text
    );
