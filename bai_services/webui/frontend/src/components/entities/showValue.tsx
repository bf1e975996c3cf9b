import i18next from 'i18next';
import { formatBytes } from '../bytes';
import { PERSONAL, personal } from '../personal';
import { formatDuration } from '../time';
import { SlotTags } from '../SlotTags';
import { TimeText } from '../TimeText';
import type { Item } from '../../data/entities';
import type { Column } from './entity';
import { UserText } from '../UserText';
import { Words } from './Words';

const TIME = /(^|_)(at|used|until)$/;

/** Render a value of an object as text, tags or quantities. */
export function showValue(value: unknown, column: Column, item: Item, area: string) {
  if (column.render) {
    return column.render(item);
  }
  if (value !== undefined && value === column.noLimit) {
    return i18next.t('entities.no-limit');
  }
  if (value === null || value === undefined || value === '') {
    return '–';
  }
  if (typeof value === 'boolean') {
    return i18next.t(value ? 'entities.yes' : 'entities.no');
  }
  if (typeof value === 'number') {
    // A number such as 0 can have a text of its own, such as "none".
    return choiceText(area, column, String(value), showNumber(value, column));
  }
  if (typeof value === 'string') {
    return TIME.test(column.key) ? (
      <TimeText at={value} isExact={column.isExact ?? false} />
    ) : (
      <UserText
        text={PERSONAL.has(column.key) ? personal(value) : choiceText(area, column, value)}
      />
    );
  }
  if (Array.isArray(value) && value.length === 0) {
    return choiceText(area, column, 'empty', '–');
  }
  if (Array.isArray(value)) {
    return (
      <Words
        words={value.map(word =>
          typeof word === 'string'
            ? choiceText(area, column, word)
            : typeof word === 'number'
              ? showNumber(word, column)
              : (word as unknown)
        )}
      />
    );
  }
  const entries = Object.entries(value);
  return entries.length === 0 ? (
    '–'
  ) : entries.every(([, quantity]) => typeof quantity === 'string') ? (
    <SlotTags slots={value as Record<string, string>} />
  ) : (
    <Words words={entries.map(([key, part]) => `${key}: ${partText(part)}`)} />
  );
}

function showNumber(value: number, { key }: Column): string {
  const { language } = i18next;
  if (key.endsWith('_bytes')) {
    return formatBytes(value, language);
  }
  return key.endsWith('_seconds') && value > 0
    ? formatDuration(value, language)
    : value.toLocaleString(language);
}

/** The translated text of a fixed choice, or the value itself. */
const choiceText = (area: string, { key }: Column, value: string, otherwise = value) => {
  const name = `${area}.${key.replaceAll('_', '-')}-${value}`;
  return i18next.exists(name) ? i18next.t(name) : otherwise;
};

const partText = (part: unknown) => (Array.isArray(part) ? part.join(', ') : JSON.stringify(part));
