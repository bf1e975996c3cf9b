import { Typography, type Breakpoint } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import type { Session } from '../../data/sessions/sessions';
import { Emails, useEmails } from '../sessions/list/Owner';
import { useSessionColumns } from '../sessions/list/sessionColumns';
import { Widget, type DashboardResult } from './Widget';

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

/** The latest pending and running sessions, of one project if one is chosen. */
export function RecentSessions({ query }: { query: DashboardResult }) {
  const { t } = useTranslation();
  const emails = useEmails(query.data?.recent ?? []);
  const all = useSessionColumns();
  const keys = query.data?.is_of_all ? [...COLUMNS, 'owner', 'agent'] : COLUMNS;
  const title = t('dashboard.recent');
  return (
    <Widget title={title} help={t('dashboard.help-recent')} query={query}>
      {({ recent }) => (
        <Emails value={emails}>
          <ScrollArea label={title}>
            <CardTable<Session>
              rowKey="id"
              size="small"
              pagination={false}
              dataSource={recent}
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
                    // The order is fixed. No column is hidden on a phone, because rows are cards there.
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
