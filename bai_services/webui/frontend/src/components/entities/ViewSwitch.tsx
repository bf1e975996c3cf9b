import { Segmented } from 'antd';
import { useTranslation } from 'react-i18next';
import type { View } from './entity';

type Filters = Record<string, string>;

interface ViewSwitchProps {
  views: readonly View[];
  filters: Filters;
  onChange: (filters: Filters) => void;
}

const ALL = 'all';

const isOfView = (views: readonly View[], name: string, value: string) =>
  views.some(view => view.filter === name && view.value === value);

const select = (filters: Filters, isWanted: (name: string, value: string) => boolean): Filters =>
  Object.fromEntries(Object.entries(filters).filter(([name, value]) => isWanted(name, value)));

/** The filter of the chosen view; empty if no view is chosen. */
export const viewFilters = (views: readonly View[], filters: Filters) =>
  select(filters, (name, value) => isOfView(views, name, value));

/** The filters without the filter of the chosen view. */
export const withoutViews = (views: readonly View[], filters: Filters) =>
  select(filters, (name, value) => !isOfView(views, name, value));

/** Switch between views of a list. Each view is one filter, which is stored in the URL. */
export function ViewSwitch({ views, filters, onChange }: ViewSwitchProps) {
  const { t } = useTranslation();
  const current = views.find(({ filter, value }) => filters[filter] === value);
  const choose = (name: string) => {
    const view = views.find(candidate => candidate.name === name);
    onChange({
      ...withoutViews(views, filters),
      ...(view ? { [view.filter]: view.value } : {})
    });
  };
  return (
    <Segmented
      aria-label={t('entities.view')}
      style={{ maxWidth: '100%', overflowX: 'auto' }}
      value={current?.name ?? ALL}
      onChange={choose}
      options={[ALL, ...views.map(({ name }) => name)].map(name => ({
        value: name,
        label: t(`entities.view-${name}`)
      }))}
    />
  );
}
