import type { Column } from '../../components/entities/entity';
import texts from '../../i18n/en/audit-log.json';
import { ActionText } from './ActionText';

/** Columns of the action of an audit entry: its text, and its code, which filters use. */
export const ACTION_COLUMNS: readonly Column[] = [
  {
    key: 'action',
    isSortable: true,
    render: ({ action }) => <ActionText action={String(action)} />
  },
  { key: 'action_code', isOptional: true, render: ({ action }) => String(action) }
];

const TITLES: readonly string[] = ['entity-id', 'entity-name'];

/** The codes of a field that have a text, as choices of a filter. */
export const choicesOf = (field: 'entity' | 'outcome') =>
  Object.keys(texts)
    .filter(key => key.startsWith(`${field}-`) && !TITLES.includes(key))
    .map(key => key.slice(field.length + 1))
    .map(code => ({ value: code, label: code }));
