import { queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type ProjectBudget = Schemas['ProjectBudget'];

const REFRESH_MILLIS = 60_000;
const MAX_SHOWN = 20;

/** The budgets of the projects that the user may see. */
export const budgetsQuery = queryOptions({
  queryKey: ['entities', '/budgets', 'shown'],
  queryFn: ({ signal }) =>
    unwrap(api.GET('/budgets', { signal, params: { query: { limit: MAX_SHOWN } } })),
  staleTime: REFRESH_MILLIS,
  refetchInterval: REFRESH_MILLIS
});

/** An amount with at most two decimal places and the currency, for example "12.5 EUR". */
export const money = (amount: number, currency: string, language: string) =>
  [new Intl.NumberFormat(language, { maximumFractionDigits: 2 }).format(amount), currency]
    .filter(Boolean)
    .join(' ');
