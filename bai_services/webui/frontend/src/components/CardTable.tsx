import { useMemo } from 'react';
import { Table, type TableColumnsType, type TableProps } from 'antd';

interface CardTableProps<T> extends Omit<TableProps<T>, 'columns'> {
  columns: TableColumnsType<T>;
}

/**
 * AntD's table. On a phone, each row is a card, in which the style sheet shows the titles of the
 * columns.
 */
export function CardTable<T extends object>({
  columns,
  className = '',
  ...props
}: CardTableProps<T>) {
  const titled = useMemo(
    () => columns.map(column => ({ ...column, ...cellTitle(column.title) })),
    [columns]
  );
  return (
    <Table<T> {...props} columns={titled} className={`bai-table bai-card-rows ${className}`} />
  );
}

/** Properties of a column that give its cells the title as an attribute, for the style sheet. */
export const cellTitle = (title: unknown) => ({
  onCell: () => ({ 'data-title': typeof title === 'string' ? title : '' }) as object
});
