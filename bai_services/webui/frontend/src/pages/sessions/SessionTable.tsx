import { Button, Empty, Table, Tag, Typography, type TableColumnsType } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { Elapsed } from '../../components/Elapsed';
import { SlotTags } from '../../components/SlotTags';
import { StatusTag } from '../../components/StatusTag';
import { isEnded, isPending, PAGE_SIZES, type Session } from '../../data/sessions';
import type { SessionsSearch } from './search';

interface SessionTableProps {
  page: { items: Session[]; total: number } | undefined;
  isLoading: boolean;
  current: number;
  size: number;
  sort: string;
  hasFilters: boolean;
  selected: string[];
  onSelect: (ids: string[]) => void;
  onChange: (changes: SessionsSearch) => void;
}

/** Table of sessions; sorting and paging are stored in the URL and done by the server. */
export function SessionTable(props: SessionTableProps) {
  const { t } = useTranslation();
  const orderOf = (field: string) =>
    props.sort === field ? 'ascend' : props.sort === `-${field}` ? 'descend' : null;
  const columns: TableColumnsType<Session> = [
    {
      key: 'name',
      title: t('sessions.name'),
      sorter: true,
      sortOrder: orderOf('name'),
      render: (_, session) => (
        <Link from="/sessions" to="." search={old => ({ ...old, session: session.id })}>
          {session.name}
        </Link>
      )
    },
    {
      key: 'status',
      title: t('sessions.status'),
      sorter: true,
      sortOrder: orderOf('status'),
      render: (_, session) => (
        <>
          <StatusTag status={session.status} />
          {(isPending(session) || session.status === 'ERROR') && (
            <Typography.Text type="secondary">{session.status_info}</Typography.Text>
          )}
        </>
      )
    },
    {
      key: 'type',
      title: t('sessions.type'),
      responsive: ['md'],
      render: (_, session) => <Tag>{t(`types.${session.type}`)}</Tag>
    },
    {
      key: 'resources',
      title: t('sessions.resources'),
      responsive: ['sm'],
      render: (_, session) => <SlotTags slots={session.requested} />
    },
    {
      key: 'elapsed',
      title: t('sessions.elapsed'),
      responsive: ['sm'],
      render: (_, session) => <Elapsed session={session} />
    },
    {
      key: 'open',
      title: '',
      render: (_, session) =>
        session.status === 'RUNNING' &&
        session.url && (
          <Button size="small" href={session.url} target="_blank" rel="noopener">
            {t('sessions.open')}
          </Button>
        )
    }
  ];
  return (
    <Table<Session>
      rowKey="id"
      size="middle"
      columns={columns}
      dataSource={props.page?.items ?? []}
      loading={props.isLoading}
      className="bai-table"
      showSorterTooltip={false}
      locale={{ emptyText: <NoSessions hasFilters={props.hasFilters} /> }}
      rowSelection={{
        selectedRowKeys: props.selected,
        onChange: keys => props.onSelect(keys.map(String)),
        getCheckboxProps: session => ({
          disabled: isEnded(session),
          'aria-label': t('sessions.select', { name: session.name })
        }),
        getTitleCheckboxProps: () => ({ 'aria-label': t('sessions.select-all') })
      }}
      pagination={{
        current: props.current,
        pageSize: props.size,
        total: props.page?.total ?? 0,
        pageSizeOptions: PAGE_SIZES,
        showSizeChanger: true,
        showTotal: (total, [first, last]) => t('table.range', { first, last, total })
      }}
      onChange={(pagination, _, sorter, { action }) => {
        if (action === 'sort' && !Array.isArray(sorter)) {
          const { columnKey, order } = sorter;
          const sort = order
            ? `${order === 'descend' ? '-' : ''}${String(columnKey)}`
            : '-created_at';
          props.onChange({ sort, page: 1 });
        } else {
          const { current = 1, pageSize = props.size } = pagination;
          props.onChange({ page: current, size: pageSize });
        }
      }}
    />
  );
}

function NoSessions({ hasFilters }: { hasFilters: boolean }) {
  const { t } = useTranslation();
  return (
    <Empty
      image={Empty.PRESENTED_IMAGE_SIMPLE}
      description={t(hasFilters ? 'sessions.none-found' : 'sessions.none')}
    >
      {!hasFilters && <Button href={`${config.hub}spawn`}>{t('sessions.create')}</Button>}
    </Empty>
  );
}
