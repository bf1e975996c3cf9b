import { SortAscendingOutlined } from '@ant-design/icons';
import { Button, Checkbox, Dropdown, type TableProps } from 'antd';
import { useTranslation } from 'react-i18next';
import { onMenuKeyDown } from '../menuKeys';

interface CardToolsProps<T> {
  columns: readonly { key: string; title: string; sorter?: unknown }[];
  /** Field of the order, with `-` in front for a descending order. */
  sort: string;
  onSort: (sort: string) => void;
  items: readonly T[];
  rowKey: keyof T & string;
  rowSelection?: TableProps<T>['rowSelection'];
}

/** The sort menu and the checkbox for all rows: on a phone, rows are cards without a table head. */
export function CardTools<T extends object>(props: CardToolsProps<T>) {
  const { t } = useTranslation();
  const { rowSelection } = props;
  const orders = props.columns
    .filter(({ title, sorter }) => title && sorter)
    .flatMap(({ key, title }) => [
      { key, label: t('table.ascending', { column: title }) },
      { key: `-${key}`, label: t('table.descending', { column: title }) }
    ]);
  const rows = props.items.filter(item => !rowSelection?.getCheckboxProps?.(item).disabled);
  const keys = rows.map(item => item[props.rowKey] as string);
  const selected = rowSelection?.selectedRowKeys ?? [];
  const count = keys.filter(key => selected.includes(key)).length;
  const selectAll = (isChecked: boolean) => {
    const others = selected.filter(key => !keys.includes(String(key)));
    const chosen = isChecked ? rows : [];
    rowSelection?.onChange?.([...others, ...(isChecked ? keys : [])], chosen, { type: 'all' });
  };
  return (
    <>
      {orders.length > 0 && (
        <Dropdown
          autoFocus
          trigger={['click']}
          menu={{
            onKeyDown: onMenuKeyDown,
            items: orders,
            selectable: true,
            selectedKeys: [props.sort],
            onClick: ({ key }) => props.onSort(key),
            style: { maxHeight: '60vh', overflowY: 'auto' }
          }}
        >
          <Button
            icon={<SortAscendingOutlined />}
            aria-label={t('table.sort')}
            aria-haspopup="menu"
          />
        </Dropdown>
      )}
      {rowSelection && keys.length > 0 && (
        <Checkbox
          checked={count === keys.length}
          indeterminate={count > 0 && count < keys.length}
          onChange={event => selectAll(event.target.checked)}
        >
          {t('table.select-all')}
        </Checkbox>
      )}
    </>
  );
}
