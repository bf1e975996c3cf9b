import { Button, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../../components/CardTable';
import { formatTime } from '../../../components/time';
import { replaysQuery, type Replay } from '../../../data/scheduling/replays';

interface RecentReplaysProps {
  group: string;
  shown: string | undefined;
  onShow: (id: string) => void;
}

/** The replays that the manager has not yet deleted, including those of other administrators. */
export function RecentReplays({ group, shown, onShow }: RecentReplaysProps) {
  const { t, i18n } = useTranslation();
  const { data: replays } = useQuery(replaysQuery(group));
  if (!replays?.length) {
    return null;
  }
  const time = (text: string) => formatTime(text, i18n.language);
  return (
    <section style={{ marginTop: 24 }}>
      <Typography.Title level={2} className="bai-card-title" style={{ marginBottom: 8 }}>
        {t('replays.recent')}
      </Typography.Title>
      <CardTable<Replay>
        className="bai-wide-table"
        size="small"
        rowKey="id"
        pagination={false}
        dataSource={replays}
        columns={[
          {
            title: t('replays.started-at'),
            render: (_, replay) => (
              <Button
                type="link"
                style={{ padding: 0 }}
                aria-current={replay.id === shown}
                onClick={() => onShow(replay.id)}
              >
                {time(replay.created_at)}
              </Button>
            )
          },
          { title: t('replays.user'), dataIndex: 'username' },
          {
            title: t('replays.period'),
            render: (_, { since, until }) => `${time(since)} – ${time(until)}`
          },
          { title: t('replays.policies'), render: (_, replay) => replay.policies.join(', ') },
          {
            title: t('replays.status'),
            render: (_, { status }) => t(`replays.status-${status}`)
          }
        ]}
      />
    </section>
  );
}
