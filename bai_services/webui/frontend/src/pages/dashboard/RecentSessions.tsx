import { Table, Typography, type Breakpoint } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ScrollArea } from '../../components/ScrollArea';
import type { Session } from '../../data/sessions/sessions';
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
  const all = useSessionColumns(query.data?.recent ?? [], false);
  const keys = query.data?.is_of_all ? [...COLUMNS, 'owner', 'agent'] : COLUMNS;
  const title = t('dashboard.recent');
  return (
    <Widget title={title} help={t('dashboard.help-recent')} query={query}>
      {({ recent }) => (
        <ScrollArea label={title}>
          <Table<Session>
            rowKey="id"
            size="small"
            pagination={false}
            dataSource={recent}
            locale={{ emptyText: <Typography.Text>{t('dashboard.no-sessions')}</Typography.Text> }}
            columns={[
              {
                key: 'name',
                title: t('sessions.name'),
                render: (_, session) => (
                  <Link to="/sessions" search={{ session: session.id }}>
                    {session.name}
                  </Link>
                )
              ]}
            />
          </ScrollArea>
        </Emails>
      )}
    </Widget>
  );
}
