import { type ReactNode, useState } from 'react';
import { DownloadOutlined, SettingOutlined } from '@ant-design/icons';
import {
  Button,
  Checkbox,
  Flex,
  Popover,
  Table,
  type TableColumnType,
  type TableProps
} from 'antd';
import { useTranslation } from 'react-i18next';
import { DEFAULT_PAGE_SIZE, PAGE_SIZES, type ListSearch } from './listSearch';

export interface ListColumn<T> extends TableColumnType<T> {
  key: string;
  title: string;
  /** Whether the column is hidden by default. */
  isOptional?: boolean;
}

interface ListTableProps<T> {
  /** Key under which the user's choice of columns is stored. */
  name: string;
  columns: ListColumn<T>[];
  page: { items: readonly T[]; total: number } | undefined;
  isLoading: boolean;
  search: ListSearch;
  defaultSort: string;
  /** Called with the changes of the list's state in the URL. */
  onChange: (changes: ListSearch) => void;
  rowKey: keyof T & string;
  empty: ReactNode;
  rowSelection?: TableProps<T>['rowSelection'];
  /** Filters and buttons above the table. */
  toolbar?: ReactNode;
  /** Address of the whole list as a CSV file. */
  csv?: string;
  /** Buttons at the end of the toolbar. */
  tools?: ReactNode;
}

/** A table that is sorted and paged by the server; the user can choose its columns. */
export function ListTable<T extends object>(props: ListTableProps<T>) {
  const { t } = useTranslation();
  const [hidden, setHidden] = useHiddenColumns(props.name, props.columns);
  const sort = props.search.sort ?? props.defaultSort;
  const orderOf = (field: string) =>
    sort === field ? 'ascend' : sort === `-${field}` ? 'descend' : null;
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        {props.toolbar}
        <span style={{ flex: 1 }} />
        {props.tools}
        {props.csv && (
          <Button
            icon={<DownloadOutlined />}
            href={props.csv}
            download
            aria-label={t('table.export')}
          />
        )}
        <ColumnChoice columns={props.columns} hidden={hidden} onChange={setHidden} />
      </Flex>
      <Table<T>
        rowKey={props.rowKey}
        size="middle"
        columns={props.columns
          .filter(column => !hidden.includes(column.key))
          .map(column => (column.sorter ? { ...column, sortOrder: orderOf(column.key) } : column))}
        dataSource={props.page?.items ?? []}
        loading={props.isLoading}
        className="bai-table"
        showSorterTooltip={false}
        locale={{ emptyText: props.empty }}
        {...(props.rowSelection ? { rowSelection: props.rowSelection } : {})}
        pagination={{
          current: props.search.page ?? 1,
          pageSize: props.search.size ?? DEFAULT_PAGE_SIZE,
          total: props.page?.total ?? 0,
          pageSizeOptions: PAGE_SIZES,
          showSizeChanger: true,
          showTotal: (total, [first, last]) => t('table.range', { first, last, total })
        }}
        onChange={(pagination, _, sorter, { action }) => {
          if (action === 'sort' && !Array.isArray(sorter)) {
            const { columnKey, order } = sorter;
            const field = order === 'descend' ? `-${String(columnKey)}` : String(columnKey);
            props.onChange({ sort: order ? field : props.defaultSort, page: 1 });
          } else {
            const { current = 1, pageSize = DEFAULT_PAGE_SIZE } = pagination;
            props.onChange({ page: current, size: pageSize });
          }
        }}
      />
    </>
  );
}

function ColumnChoice<T>(props: {
  columns: ListColumn<T>[];
  hidden: string[];
  onChange: (hidden: string[]) => void;
}) {
  const { t } = useTranslation();
  // The first column identifies the row, so it cannot be hidden.
  const choices = props.columns.slice(1).filter(column => column.title);
  return (
    <Popover
      trigger="click"
      placement="bottomRight"
      title={t('table.columns')}
      content={
        <Checkbox.Group
          style={{ flexDirection: 'column' }}
          value={choices.map(({ key }) => key).filter(key => !props.hidden.includes(key))}
          options={choices.map(({ key, title }) => ({ value: key, label: title }))}
          onChange={shown =>
            props.onChange(choices.map(({ key }) => key).filter(key => !shown.includes(key)))
          }
        />
      }
    >
      <Button icon={<SettingOutlined />} aria-label={t('table.columns')} />
    </Popover>
  );
}

function useHiddenColumns<T>(name: string, columns: ListColumn<T>[]) {
  const key = `bai-columns-${name}`;
  const [hidden, setHidden] = useState<string[]>(() => {
    const stored = localStorage.getItem(key);
    return stored === null
      ? columns.filter(column => column.isOptional).map(column => column.key)
      : stored.split(',');
  });
  const store = (keys: string[]) => {
    localStorage.setItem(key, keys.join(','));
    setHidden(keys);
  };
  return [hidden, store] as const;
}
