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

const ISO_CODE = /^[A-Z]{3}$/;
const DECIMALS = 2;

/** The usual number of decimal places of a currency; two if its name is not an ISO code. */
function decimalsOf(currency: string): number {
  if (!ISO_CODE.test(currency)) {
    return DECIMALS;
  }
  const format = new Intl.NumberFormat('en', { style: 'currency', currency });
  return format.resolvedOptions().maximumFractionDigits ?? DECIMALS;
}

/** Whether more than a budget was spent; an excess that is shown as 0 does not count. */
export const isOver = (left: number, currency: string) => left <= -0.5 / 10 ** decimalsOf(currency);

/** An amount with the decimal places of its currency, for example "12.50 EUR". */
export function money(amount: number, currency: string, language: string): string {
  const decimals = decimalsOf(currency);
  const format = new Intl.NumberFormat(language, {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
    // A small negative amount is shown as 0 and not as -0.
    signDisplay: 'negative'
  });
  return `${format.format(amount)} ${currency}`.trim();
}
