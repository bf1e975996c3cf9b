import { Table, Typography, type Breakpoint } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ScrollArea } from '../../components/ScrollArea';
import { sessionsQuery, STATUS_GROUPS, type Session } from '../../data/sessions/sessions';
import { Emails, useEmails } from '../sessions/list/Owner';
import { useSessionColumns } from '../sessions/list/sessionColumns';
import { Widget, WIDGET_REFRESH_MILLIS } from './Widget';

const RECENT = 5;
const ACTIVE = [...STATUS_GROUPS.pending, ...STATUS_GROUPS.running].join(',');
const EVERY_WIDTH: Breakpoint[] = ['xs', 'sm'];
const COLUMNS = [
  'status',
  'devices',
  'cpu',
  'mem',
  'elapsed',
  'image',
  'resource_group',
  'type',
  'cluster',
  'created_at'
];

interface RecentSessionsProps {
  /** undefined: the sessions of all users. */
  owner: string | undefined;
  project: string | undefined;
}

/** The latest pending and running sessions, of one project if `project` is given. */
export function RecentSessions({ owner, project }: RecentSessionsProps) {
  const { t } = useTranslation();
  const filters = {
    status__in: ACTIVE,
    ...(owner === undefined ? {} : { owner }),
    ...(project === undefined ? {} : { project })
  };
  const recent = useQuery({
    ...sessionsQuery({ limit: RECENT, offset: 0, sort: '-created_at', filters }),
    refetchInterval: WIDGET_REFRESH_MILLIS
  });
  const emails = useEmails(recent.data?.items ?? []);
  const all = useSessionColumns();
  const keys = owner === undefined ? [...COLUMNS, 'owner', 'agent'] : COLUMNS;
  const title = t('dashboard.recent');
  return (
    <Widget title={title} help={t('dashboard.help-recent')} query={recent}>
      {({ items }) => (
        <Emails value={emails}>
          <ScrollArea label={title}>
            <Table<Session>
              rowKey="id"
              size="small"
              pagination={false}
              dataSource={items}
              locale={{
                emptyText: <Typography.Text>{t('dashboard.no-sessions')}</Typography.Text>
              }}
              columns={[
                {
                  key: 'name',
                  title: t('sessions.name'),
                  render: (_, session) => (
                    <Link to="/sessions" search={{ session: session.id }}>
                      {session.name}
                    </Link>
                  )
                },
                ...keys.flatMap(key =>
                  all
                    .filter(column => column.key === key)
                    // The order is fixed. A narrow table scrolls, so no column is hidden.
                    .map(column => ({ ...column, sorter: false, responsive: EVERY_WIDTH }))
                )
              ]}
            />
          </ScrollArea>
        </Emails>
      )}
    </Widget>
  );
}
