import type { ReactNode } from 'react';
import { Button, Empty, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Elapsed } from '../../components/Elapsed';
import { ListTable, type ListColumn } from '../../components/ListTable';
import { SlotTags } from '../../components/SlotTags';
import { StatusTag } from '../../components/StatusTag';
import { formatTime, withLocalTimes } from '../../components/time';
import { meQuery } from '../../data/me';
import { isEnded, isPending, type Session } from '../../data/sessions';
import { usageTrendsQuery } from '../../data/usage';
import { DeviceTags } from './DeviceTags';
import { IdleCountdown } from './IdleCountdown';
import { OpenSession } from './OpenSession';
import { DEFAULT_SORT, filtersOf, type SessionsSearch } from './search';
import { UsageTrend } from './UsageTrend';

interface SessionTableProps {
  page: { items: Session[]; total: number } | undefined;
  isLoading: boolean;
  search: SessionsSearch;
  selected: string[];
  onSelect: (ids: string[]) => void;
  onChange: (changes: SessionsSearch) => void;
  toolbar: ReactNode;
  tools: ReactNode;
  csv: string;
}

/**
 * One page of sessions, sorted and paged by the server; the URL contains the sort order and the
 * page.
 */
export function SessionTable(props: SessionTableProps) {
  const { t } = useTranslation();
  const columns = useColumns(props.page?.items ?? []);
  return (
    <ListTable<Session>
      name="sessions"
      rowKey="id"
      columns={columns}
      page={props.page}
      isLoading={props.isLoading}
      search={props.search}
      defaultSort={DEFAULT_SORT}
      onChange={props.onChange}
      toolbar={props.toolbar}
      tools={props.tools}
      csv={props.csv}
      empty={<NoSessions hasFilters={Object.keys(filtersOf(props.search)).length > 0} />}
      rowSelection={{
        selectedRowKeys: props.selected,
        onChange: keys => props.onSelect(keys.map(String)),
        getCheckboxProps: session => ({
          disabled: isEnded(session),
          'aria-label': t('sessions.select', { name: session.name })
        }),
        getTitleCheckboxProps: () => ({ 'aria-label': t('sessions.select-all') })
      }}
    />
  );
}

function useColumns(sessions: Session[]): ListColumn<Session>[] {
  const { t, i18n } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const running = sessions.filter(({ status }) => status === 'RUNNING').map(({ id }) => id);
  const { data: trends } = useQuery(usageTrendsQuery(running));
  const seesOthers = me !== undefined && me.role !== 'user';
  return [
    {
      key: 'name',
      title: t('sessions.name'),
      sorter: true,
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
      render: (_, session) => (
        <>
          <StatusTag status={session.status} />{' '}
          {(isPending(session) || session.status === 'ERROR') && (
            <Typography.Text type="secondary">
              {withLocalTimes(session.status_info, i18n.language)}
            </Typography.Text>
          )}
        </>
      )
    },
    {
      key: 'type',
      title: t('sessions.type'),
      sorter: true,
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
      key: 'devices',
      title: t('sessions.devices'),
      responsive: ['lg'],
      render: (_, session) => <DeviceTags session={session} />
    },
    {
      key: 'usage',
      title: t('sessions.usage'),
      responsive: ['lg'],
      render: (_, session) => <UsageTrend trend={trends?.get(session.id)} />
    },
    {
      key: 'elapsed',
      title: t('sessions.elapsed'),
      responsive: ['sm'],
      render: (_, session) => <Elapsed session={session} />
    },
    {
      key: 'idle',
      title: t('sessions.idle'),
      responsive: ['lg'],
      render: (_, session) => <IdleCountdown session={session} />
    },
    { key: 'owner', title: t('sessions.owner'), dataIndex: 'owner', isOptional: !seesOthers },
    { key: 'project', title: t('sessions.project'), dataIndex: 'project', isOptional: true },
    {
      key: 'resource_group',
      title: t('sessions.group'),
      dataIndex: 'resource_group',
      sorter: true,
      isOptional: true
    },
    { key: 'image', title: t('sessions.image'), dataIndex: 'image', isOptional: true },
    { key: 'agent', title: t('sessions.agent'), dataIndex: 'agent', isOptional: true },
    {
      key: 'dependencies',
      title: t('sessions.dependencies'),
      isOptional: true,
      render: (_, session) => session.dependencies.map(({ name }) => name).join(', ')
    },
    {
      key: 'priority',
      title: t('sessions.priority'),
      dataIndex: 'priority',
      sorter: true,
      isOptional: true
    },
    {
      key: 'created_at',
      title: t('sessions.created'),
      sorter: true,
      isOptional: true,
      render: (_, session) => formatTime(session.created_at, i18n.language)
    },
    {
      key: 'open',
      title: '',
      render: (_, session) => <OpenSession session={session} size="small" />
    }
  ];
}

function NoSessions({ hasFilters }: { hasFilters: boolean }) {
  const { t } = useTranslation();
  return (
    <Empty
      image={Empty.PRESENTED_IMAGE_SIMPLE}
      description={t(hasFilters ? 'sessions.none-found' : 'sessions.none')}
    >
      {!hasFilters && (
        <Link to="/launch">
          <Button>{t('sessions.create')}</Button>
        </Link>
      )}
    </Empty>
  );
}
