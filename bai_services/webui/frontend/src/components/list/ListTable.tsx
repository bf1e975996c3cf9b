import { memo, useMemo, useState, type ReactNode } from 'react';
import { FilterOutlined, ReloadOutlined } from '@ant-design/icons';
import { Button, Flex, Grid, Pagination, Table, type TableColumnType, type TableProps } from 'antd';
import type { SorterResult, SortOrder } from 'antd/es/table/interface';
import { useTranslation } from 'react-i18next';
import { cellTitle } from '../CardTable';
import { CardTools } from './CardTools';
import { ColumnChoice, useHiddenColumns } from './ColumnChoice';
import { CsvExport } from './CsvExport';
import { useLatest } from '../useLatest';
import { countText, type ListSearch } from './listSearch';
import { keepPageSize, PAGE_SIZES, usePageSize } from './pageSize';

export interface ListColumn<T> extends TableColumnType<T> {
  key: string;
  title: string;
  /** Whether the column is hidden by default. */
  isOptional?: boolean;
}

/** AntD's table, rendered again only if a property changes, because rendering the rows is slow. */
const Rows = memo(Table) as unknown as typeof Table;
const NO_ROWS: readonly never[] = [];
const NO_LOCALE = {};
// Replaces the message of an empty list before the first response, when it is not known whether
// there are rows.
const NOTHING = <></>;

/** `columns` and `rowSelection` should be the same objects until their content changes. */
interface ListTableProps<T> {
  /** Key under which the user's choice of columns is stored. */
  name: string;
  columns: ListColumn<T>[];
  page: { items: readonly T[]; total: number } | undefined;
  isLoading: boolean;
  search: ListSearch & { name?: string };
  defaultSort: string;
  /** Called with the changes of the list's state in the URL. */
  onChange: (changes: ListSearch) => void;
  rowKey: keyof T & string;
  empty: ReactNode;
  rowSelection?: TableProps<T>['rowSelection'];
  /** Filters above the table; on a phone, they are shown on request. */
  filters?: ReactNode;
  /** Buttons above the table, which are always shown. */
  toolbar?: ReactNode;
  /** URL of the whole list as a CSV file. */
  csv?: string;
  /** Reads the list again. */
  onRefresh?: () => void;
  isRefreshing?: boolean;
  /** Buttons at the end of the toolbar. */
  tools?: ReactNode;
}

/** A table that is sorted and paged by the server; the user can choose its columns. */
export function ListTable<T extends object>(props: ListTableProps<T>) {
  const { t } = useTranslation();
  const [hidden, setHidden] = useHiddenColumns(props.name, props.columns);
  const pageSize = usePageSize();
  const sort = props.search.sort ?? props.defaultSort;
  const items = props.page?.items ?? NO_ROWS;
  const screens = Grid.useBreakpoint();
  // On a phone, filters and tools would fill the screen above the rows.
  const isNarrow = screens.sm === false;
  const [isOpen, setIsOpen] = useState(false);
  const filterCount = Object.keys(props.search.filters ?? {}).length + (props.search.name ? 1 : 0);
  const columns = useMemo(() => {
    const orderOf = (field: string): SortOrder =>
      sort === field ? 'ascend' : sort === `-${field}` ? 'descend' : null;
    // AntD's table would add the columns for wide screens only after its first layout, and the
    // message of an empty list could remain as narrow as on a phone.
    return props.columns.flatMap(({ responsive, ...column }) => {
      const hasSpace = !responsive || responsive.some(width => screens[width]);
      if (!hasSpace || hidden.includes(column.key)) {
        return [];
      }
      const shown = { ...column, ...cellTitle(column.title) };
      return [column.sorter ? { ...shown, sortOrder: orderOf(column.key) } : shown];
    });
  }, [props.columns, hidden, sort, screens]);
  const { rowSelection: given } = props;
  const rowSelection = useMemo(
    () =>
      given && {
        getTitleCheckboxProps: () => ({ 'aria-label': t('table.select-all') }),
        ...given
      },
    [given, t]
  );
  const onSort = useLatest(
    (_: unknown, _filters: unknown, sorter: SorterResult<T> | SorterResult<T>[]) => {
      if (!Array.isArray(sorter)) {
        const { columnKey, order } = sorter;
        const field = order === 'descend' ? `-${String(columnKey)}` : String(columnKey);
        props.onChange({ sort: order ? field : props.defaultSort, page: 1 });
      }
    }
  );
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        {isNarrow && (
          <Button
            icon={<FilterOutlined />}
            aria-expanded={isOpen}
            onClick={() => setIsOpen(!isOpen)}
          >
            {t('table.options', { count: filterCount })}
          </Button>
        )}
        {isNarrow && (
          <CardTools<T>
            columns={props.columns}
            sort={sort}
            onSort={field => props.onChange({ sort: field, page: 1 })}
            items={items}
            rowKey={props.rowKey}
            {...(props.rowSelection ? { rowSelection: props.rowSelection } : {})}
          />
        )}
        {(!isNarrow || isOpen) && props.filters}
        <div className="bai-list-actions">{props.toolbar}</div>
        {(!isNarrow || isOpen) && (
          <Flex gap="small" style={{ marginInlineStart: 'auto' }}>
            {props.tools}
            {props.onRefresh && (
              <Button
                icon={<ReloadOutlined spin={props.isRefreshing ?? false} />}
                onClick={props.onRefresh}
                aria-label={t('table.refresh')}
              />
            )}
            {props.csv && <CsvExport url={props.csv} />}
            <ColumnChoice columns={props.columns} hidden={hidden} onChange={setHidden} />
          </Flex>
        )}
      </Flex>
      <Rows<T>
        rowKey={props.rowKey}
        size="middle"
        columns={columns}
        dataSource={items}
        loading={props.isLoading}
        className="bai-table bai-card-rows"
        showSorterTooltip={false}
        locale={items.length > 0 ? NO_LOCALE : { emptyText: props.page ? props.empty : NOTHING }}
        {...(rowSelection ? { rowSelection } : {})}
        pagination={false}
        onChange={onSort}
      />
      {props.page !== undefined && props.page.total > 0 && (
        <Pagination
          className="bai-pager"
          align="end"
          size="small"
          current={props.search.page ?? 1}
          pageSize={props.search.size ?? pageSize}
          total={props.page.total}
          pageSizeOptions={PAGE_SIZES}
          showSizeChanger
          showTotal={(total, [first, last]) =>
            t('table.range', { first, last, total: countText(total, last) })
          }
          onChange={(page, size) => {
            if (size !== pageSize) {
              keepPageSize(size);
            }
            props.onChange({ page, size });
          }}
        />
      )}
    </>
  );
}
