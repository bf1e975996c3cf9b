import type { ReactNode } from 'react';
import { ReloadOutlined } from '@ant-design/icons';
import { Alert, Button, Empty, Flex, Input, Pagination, Select, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { FilterBar, type FilterProperty } from '../../components/list/FilterBar';
import { countText, listQuery } from '../../components/list/listSearch';
import { PAGE_SIZES } from '../../components/list/pageSize';
import { entitiesQuery } from '../../data/entities';
import type { ModelCard } from '../../data/serving/models';
import { ModelTile } from './ModelTile';
import type { ModelsSearch } from './search';

const GIBIBYTE = 2 ** 30;
const SIZES = [1, 10, 50, 200].map(size => size * GIBIBYTE);
const SORTS = ['title', '-title', '-created_at', 'created_at', 'size_bytes', '-size_bytes'];
const TEXT = 'text__contains';

interface ModelGalleryProps {
  search: ModelsSearch;
  onChange: (changes: Record<string, unknown>) => void;
  /** The model stores that the user sees; undefined until they are known. */
  stores: readonly unknown[] | undefined;
  tools: ReactNode;
}

/** Cards of models with a search, filters, a sort order and pages. */
export function ModelGallery({ search, onChange, stores, tools }: ModelGalleryProps) {
  const { t, i18n } = useTranslation();
  const query = listQuery(search, 'title');
  const { [TEXT]: text, ...filters } = search.filters ?? {};
  // Former versions are shown only on request; the drawer of a model links to them.
  const list = useQuery(
    entitiesQuery('/models', { ...query, filters: { is_latest: 'true', ...query.filters } })
  );
  const models = list.data?.items as unknown as ModelCard[] | undefined;
  const setFilters = (changed: Record<string, string>) =>
    onChange({ filters: { ...(text ? { [TEXT]: text } : {}), ...changed }, page: undefined });
  const properties: FilterProperty[] = [
    { key: 'task', title: t('models.task') },
    { key: 'frameworks__contains', title: t('models.frameworks') },
    { key: 'license', title: t('models.license') },
    {
      key: 'size_bytes__lte',
      title: t('models.max-size'),
      choices: SIZES.map(size => ({
        value: String(size),
        label: formatBytes(size, i18n.language)
      }))
    },
    { key: 'fits', title: t('models.fits'), isFlag: true },
    { key: 'is_latest', title: t('models.is-latest'), isFlag: true },
    { key: 'project__contains', title: t('models.project') },
    { key: 'host', title: t('models.host') }
  ];
  if (stores?.length === 0) {
    return <Alert type="info" showIcon title={t('models.no-store')} />;
  }
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 16 }}>
        <Input.Search
          key={text}
          defaultValue={text}
          allowClear
          onSearch={value =>
            onChange({
              filters: { ...filters, ...(value.trim() ? { [TEXT]: value.trim() } : {}) },
              page: undefined
            })
          }
          placeholder={t('models.search')}
          aria-label={t('models.search')}
          style={{ width: 240 }}
        />
        <FilterBar properties={properties} filters={filters} onChange={setFilters} />
        <Flex gap="small" style={{ marginInlineStart: 'auto' }}>
          {tools}
          <Select
            value={query.sort}
            onChange={sort =>
              onChange({ sort: sort === 'title' ? undefined : sort, page: undefined })
            }
            options={SORTS.map(value => ({ value, label: t(`models.sort-${value}`) }))}
            aria-label={t('models.sort')}
            style={{ minWidth: 170 }}
          />
          <Button
            icon={<ReloadOutlined spin={list.isFetching} />}
            onClick={() => void list.refetch()}
            aria-label={t('table.refresh')}
          />
        </Flex>
      </Flex>
      {list.error && <ErrorNotice error={list.error} onRetry={() => void list.refetch()} />}
      {!models && !list.error && <Skeleton active />}
      {models?.length === 0 && (
        <Empty
          image={Empty.PRESENTED_IMAGE_SIMPLE}
          description={t(search.filters ? 'models.none-found' : 'models.none')}
        />
      )}
      <div className="bai-models">
        {models?.map(model => (
          <ModelTile key={model.id} model={model} onOpen={() => onChange({ item: model.id })} />
        ))}
      </div>
      {list.data !== undefined && list.data.total > 0 && (
        <Pagination
          className="bai-pager"
          align="end"
          size="small"
          current={search.page ?? 1}
          pageSize={query.limit}
          total={list.data.total}
          pageSizeOptions={PAGE_SIZES}
          showSizeChanger
          showTotal={(total, [first, last]) =>
            t('table.range', { first, last, total: countText(total, last) })
          }
          onChange={(page, size) => onChange({ page, size })}
        />
      )}
    </>
  );
}
