import i18next from 'i18next';
import { USABLE_PROJECTS, type Entity } from '../../components/entities/entity';
import { CHANGED_BY_ROLE, isChangeableBy } from '../../components/entities/sharedObjects';
import type { Item } from '../../data/entities';
import { isOver, money } from '../../data/usage/budgets';

const MODES = ['warn', 'block'];
const PERIODS = ['month', 'fixed'];
const isFixed = (shown: Item) => shown['period'] === 'fixed';
const choices = (values: readonly string[]) => values.map(value => ({ value, label: value }));
const currencyOf = ({ currency }: Item) => (typeof currency === 'string' ? currency : '');

/** An amount of a budget with its currency. */
const amountOf = (key: string) => (item: Item) => {
  const { [key]: amount } = item;
  return typeof amount === 'number' ? money(amount, currencyOf(item), i18next.language) : '–';
};

/** What is left of a budget, or by how much it is exceeded. */
const leftOf = (item: Item) =>
  typeof item['left'] === 'number' && isOver(item['left'], currencyOf(item))
    ? i18next.t('budgets.over', { amount: amountOf('left')({ ...item, left: -item['left'] }) })
    : amountOf('left')(item);

/** Budgets of projects. */
export const BUDGETS: Entity = {
  name: 'budgets',
  path: '/budgets',
  id: 'project_id',
  defaultSort: 'project',
  refreshMillis: 60_000,
  columns: [
    { key: 'project', isSortable: true },
    { key: 'domain', isSortable: true },
    { key: 'amount', isSortable: true, render: amountOf('amount') },
    { key: 'spent', isSortable: true, render: amountOf('spent') },
    { key: 'left', render: leftOf },
    { key: 'spent_percent' },
    { key: 'mode', isSortable: true },
    { key: 'blocked_at', isSortable: true },
    { key: 'period', isOptional: true },
    { key: 'time_zone', isOptional: true },
    { key: 'warn_percents', isOptional: true },
    { key: 'stop_after_minutes', isOptional: true },
    { key: 'spent_at', isOptional: true },
    CHANGED_BY_ROLE,
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'project__contains' },
    { key: 'domain' },
    { key: 'mode', choices: choices(MODES) }
  ],
  fields: [
    {
      key: 'project',
      kind: 'reference',
      of: USABLE_PROJECTS,
      isRequired: true,
      only: 'create'
    },
    { key: 'amount', kind: 'number', decimals: 2, isRequired: true },
    { key: 'mode', kind: 'choice', choices: MODES, default: 'warn' },
    { key: 'warn_percents', kind: 'words', default: '80, 100' },
    { key: 'period', kind: 'choice', choices: PERIODS, default: 'month' },
    { key: 'starts_at', kind: 'time', isNullable: true, isShown: isFixed },
    { key: 'ends_at', kind: 'time', isNullable: true, isShown: isFixed },
    { key: 'time_zone', kind: 'text', default: 'UTC', isShown: shown => !isFixed(shown) },
    { key: 'stop_after_minutes', kind: 'number', isNullable: true }
  ],
  writers: ['admin', 'superadmin'],
  isWritable: isChangeableBy,
  canCreate: true,
  canDelete: true
};
