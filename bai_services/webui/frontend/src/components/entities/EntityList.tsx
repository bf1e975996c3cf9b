import { useMemo, useState, type Key, type ReactNode } from 'react';
import { Button, Empty } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/accounts/me';
import { entitiesQuery, type Item } from '../../data/entities';
import { queries } from '../../data/queries';
import { useLatest } from '../useLatest';
import { usePrefetchNextPage } from '../list/usePrefetchNextPage';
import { ErrorNotice } from '../ErrorNotice';
import { csvUrl } from '../../data/csv';
import { FilterBar } from '../list/FilterBar';
import { SavedFilters } from '../list/SavedFilters';
import { listQuery, readListSearch } from '../list/listSearch';
import { ListTable } from '../list/ListTable';
import { BulkBar } from './BulkBar';
import { actionText, canWrite, idOf, labelKey, type Entity } from './entity';
import { EntityDrawer } from './EntityDrawer';
import { EntityForm } from './EntityForm';
import type { EntitySearch } from './search';
import { showValue } from './showValue';
import { viewFilters, ViewSwitch, withoutViews } from './ViewSwitch';

interface EntityListProps {
  entity: Entity;
  search: EntitySearch;
  onSearch: (changes: EntitySearch) => void;
  /** Additional content of an object's drawer. */
  details?: ((item: Item) => ReactNode) | undefined;
  /** Additional buttons in an object's drawer. */
  actions?: ((item: Item) => ReactNode) | undefined;
  onCreated?: (item: Item) => void;
  /** Additional buttons above the list, for users who may change the collection. */
  toolbar?: ReactNode;
  /** Additional buttons above the list, for all users. */
  tools?: ReactNode;
}

/** The list of a collection, with a drawer for each object and a form for a new one. */
export function EntityList(props: EntityListProps) {
  const { entity, search } = props;
  const { t } = useTranslation();
  const [selected, setSelected] = useState<string[]>([]);
  const [isCreating, setIsCreating] = useState(false);
  const { data: me } = useQuery(meQuery);
  const query = listQuery(search, entity.defaultSort);
  const list = useQuery({
    ...entitiesQuery(entity.path, query),
    refetchInterval: entity.refreshMillis ?? false
  });
  const isWriter = entity.writers.some(role => role === me?.role);
  const [first] = entity.columns;
  const { views = [] } = entity;
  const filters = search.filters ?? {};
  // A list without a filter bar can have fixed filters.
  const isFiltered = search.filters !== undefined && entity.filters.length > 0;
  const hasSelection =
    isWriter &&
    (entity.activation !== undefined || entity.fields.some(field => field.isBulkEditable === true));

  const onSearch = (changes: EntitySearch) => {
    if (!('item' in changes)) {
      setSelected([]);
    }
    props.onSearch(changes);
  };

  const open = useLatest((item: Item) => onSearch({ item: idOf(entity, item) }));
  const columns = useMemo(
    () =>
      entity.columns.map(column => ({
        key: column.key,
        title: t(labelKey(entity, column.key)),
        sorter: column.isSortable ?? false,
        isOptional: column.isOptional ?? false,
        ...(column.hasSentences && { className: 'bai-sentences' }),
        render: (_: unknown, item: Item) =>
          column === first && !entity.hasNoDetails ? (
            <Button type="link" style={{ padding: 0, height: 'auto' }} onClick={() => open(item)}>
              {showValue(item[column.key], column, item, entity.name)}
            </Button>
          ) : (
            showValue(item[column.key], column, item, entity.name)
          )
      })),
    [entity, first, open, t]
  );
  const rowSelection = useMemo(
    () => ({
      selectedRowKeys: selected,
      onChange: (keys: Key[]) => setSelected(keys.map(String)),
      getCheckboxProps: (item: Item) => ({
        'aria-label': idOf(entity, item),
        disabled: !canWrite(entity, item, me?.role)
      })
    }),
    [entity, me?.role, selected]
  );
  usePrefetchNextPage(list, query, next => queries.query(entitiesQuery(entity.path, next)));

  return (
    <>
      {list.error && <ErrorNotice error={list.error} onRetry={() => void list.refetch()} />}
      <ListTable<Item>
        name={entity.name}
        rowKey={entity.id}
        page={list.data}
        isLoading={list.isFetching && !list.data}
        search={search}
        defaultSort={entity.defaultSort}
        onChange={onSearch}
        csv={csvUrl(entity.path, query)}
        onRefresh={() => void list.refetch()}
        isRefreshing={list.isFetching}
        tools={
          <SavedFilters
            list={entity.name}
            search={{ filters: search.filters ?? {}, sort: search.sort }}
            onApply={saved => onSearch({ ...readListSearch({ ...saved, page: 1 }) })}
          />
        }
        columns={columns}
        empty={
          <Empty
            image={Empty.PRESENTED_IMAGE_SIMPLE}
            description={isFiltered ? t('entities.none-found') : actionText(t, entity, 'none')}
          />
        }
        {...(hasSelection ? { rowSelection } : {})}
        filters={
          entity.filters.length > 0 && (
            <FilterBar
              properties={entity.filters.map(filter => ({
                ...filter,
                title: t(labelKey(entity, filter.key.replace(/__.*$/, ''))),
                ...(filter.choices && {
                  choices: filter.choices.map(({ value, label }) => ({
                    value,
                    label: t(`${labelKey(entity, filter.key)}-${value}`, label)
                  }))
                })
              }))}
              filters={withoutViews(views, filters)}
              onChange={changed =>
                onSearch({ filters: { ...viewFilters(views, filters), ...changed }, page: 1 })
              }
            />
          )
        }
        toolbar={
          <>
            {views.length > 0 && (
              <ViewSwitch
                views={views}
                filters={filters}
                onChange={changed => onSearch({ filters: changed, page: 1 })}
              />
            )}
            {isWriter && entity.canCreate && (
              <Button type="primary" onClick={() => setIsCreating(true)}>
                {t(`${entity.name}.create`)}
              </Button>
            )}
            {isWriter && props.toolbar}
            {props.tools}
            {hasSelection && <BulkBar entity={entity} selected={selected} onSelect={setSelected} />}
          </>
        }
      />
      {isCreating && (
        <EntityForm
          entity={entity}
          item={undefined}
          onClose={() => setIsCreating(false)}
          onCreated={props.onCreated}
        />
      )}
      {search.item !== undefined && !entity.hasNoDetails && (
        <EntityDrawer
          entity={entity}
          itemKey={search.item}
          known={list.data?.items.find(item => idOf(entity, item) === search.item)}
          role={me?.role}
          details={props.details}
          actions={props.actions}
          onClose={() => onSearch({ item: '' })}
        />
      )}
    </>
  );
}
