import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type ProjectBudget = Schemas['ProjectBudget'];

const REFRESH_MILLIS = 60_000;

/** One page of the budgets of the projects that the user may see. */
export const budgetsQuery = (page: { limit: number; offset: number }) =>
  queryOptions({
    queryKey: ['entities', '/budgets', 'shown', page],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/budgets', { signal, params: { query: { ...page, sort: 'project' } } })),
    staleTime: REFRESH_MILLIS,
    refetchInterval: REFRESH_MILLIS,
    placeholderData: keepPreviousData
  });

/** Whether more than a budget was spent; an excess that is shown as 0 does not count. */
export const isOver = (left: number) => left <= -0.005;

/** An amount with at most two decimal places and the currency, for example "12.5 EUR". */
export const money = (amount: number, currency: string, language: string) =>
  [
    // A small negative amount is shown as 0 and not as -0.
    new Intl.NumberFormat(language, { maximumFractionDigits: 2, signDisplay: 'negative' }).format(
      amount
    ),
    currency
  ]
    .filter(Boolean)
    .join(' ');
