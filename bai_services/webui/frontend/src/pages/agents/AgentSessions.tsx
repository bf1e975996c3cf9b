import { useState } from 'react';
import { Segmented } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { ErrorNotice } from '../../components/ErrorNotice';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import { SlotTags } from '../../components/SlotTags';
import { StatusTag } from '../../components/StatusTag';
import { formatTime } from '../../components/time';
import { allocationsQuery, kernelsQuery, type Kernel } from '../../data/cluster/agents';
import { slotsOf } from './slotsOf';

const PAGE_SIZE = 20;

/** The sessions that run or ran on an agent and that the caller may see. */
export function AgentSessions({ agent }: { agent: string }) {
  const { t, i18n } = useTranslation();
  const [isRunning, setIsRunning] = useState(true);
  const [page, setPage] = useState(1);
  const kernels = useQuery(
    kernelsQuery(agent, isRunning, { limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE })
  );
  const allocations = useQuery(allocationsQuery(agent));
  return (
    <>
      <Segmented
        aria-label={t('agents.tab-sessions')}
        style={{ marginBottom: 12 }}
        value={isRunning ? 'running' : 'finished'}
        onChange={name => {
          setIsRunning(name === 'running');
          setPage(1);
        }}
        options={['running', 'finished'].map(value => ({ value, label: t(`agents.${value}`) }))}
      />
      {kernels.error && <ErrorNotice error={kernels.error} />}
      <ScrollArea label={t('agents.tab-sessions')}>
        <CardTable<Kernel>
          rowKey="id"
          size="small"
          loading={kernels.isPending}
          dataSource={kernels.data?.items ?? []}
          locale={{ emptyText: t('agents.no-sessions') }}
          pagination={{
            current: page,
            pageSize: PAGE_SIZE,
            total: kernels.data?.total ?? 0,
            hideOnSinglePage: true,
            onChange: setPage
          }}
          columns={[
            {
              key: 'session',
              title: t('agents.session'),
              render: (_, kernel) => (
                <Link to="/sessions" search={{ tab: 'all', session: kernel.session_id }}>
                  {kernel.session}
                </Link>
              )
            },
            { key: 'owner', title: t('agents.owner'), dataIndex: 'owner', render: personal },
            {
              key: 'status',
              title: t('agents.status'),
              render: (_, kernel) => <StatusTag status={kernel.status} />
            },
            ...(isRunning
              ? [
                  {
                    key: 'share',
                    title: t('agents.share'),
                    render: (_: unknown, kernel: Kernel) => (
                      <SlotTags slots={slotsOf(kernel.id, allocations.data ?? [])} />
                    )
                  }
                ]
              : []),
            {
              key: 'created',
              title: t('agents.created-at'),
              render: (_, kernel) => formatTime(kernel.created_at, i18n.language)
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}
