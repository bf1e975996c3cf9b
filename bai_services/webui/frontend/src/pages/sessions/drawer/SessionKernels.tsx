import { Button, Progress, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../../components/CardTable';
import { ScrollArea } from '../../../components/ScrollArea';
import { formatBytes } from '../../../components/bytes';
import type { Session } from '../../../data/sessions/sessions';

const SHORT_ID = 12;

type Kernel = Session['kernels'][number];

interface KernelUsage {
  cpu_cores?: number;
  mem_bytes?: number;
}

interface SessionKernelsProps {
  session: Session;
  onShowLog: (hostname: string) => void;
}

/** The kernels of a session with their agents and current usage. */
export function SessionKernels({ session, onShowLog }: SessionKernelsProps) {
  const { t, i18n } = useTranslation();
  const usageOf = (kernel: Kernel) => kernel.usage as KernelUsage;
  return (
    <ScrollArea label={t('sessions.kernels')}>
      <CardTable<Kernel>
        rowKey="id"
        size="small"
        pagination={false}
        dataSource={session.kernels}
        columns={[
          {
            key: 'hostname',
            title: t('kernels.hostname'),
            render: (_, { hostname }) => (
              <Button
                type="link"
                size="small"
                aria-label={t('kernels.show-log', { hostname })}
                onClick={() => onShowLog(hostname)}
              >
                {hostname}
              </Button>
            )
          },
          { key: 'role', title: t('kernels.role'), render: (_, { role }) => t(`kernels.${role}`) },
          { key: 'agent', title: t('sessions.agent'), render: (_, { agent }) => agent ?? '–' },
          {
            key: 'cpu',
            title: t('kernels.cpu'),
            render: (_, kernel) => {
              const cores = usageOf(kernel).cpu_cores;
              return cores?.toLocaleString(i18n.language, { maximumFractionDigits: 2 }) ?? '–';
            }
          },
          {
            key: 'memory',
            title: t('kernels.memory'),
            render: (_, kernel) => {
              const bytes = usageOf(kernel).mem_bytes;
              return bytes === undefined ? '–' : formatBytes(bytes, i18n.language);
            }
          },
          {
            key: 'progress',
            title: t('kernels.progress'),
            render: (_, { progress }) =>
              typeof progress['percent'] === 'number' && (
                <Progress
                  size="small"
                  percent={Math.round(progress['percent'])}
                  aria-label={t('kernels.progress')}
                />
              )
          },
          {
            key: 'container',
            title: t('kernels.container'),
            render: (_, { container_id: container }) =>
              container && (
                <Typography.Text copyable={{ text: container }}>
                  {container.slice(0, SHORT_ID)}
                </Typography.Text>
              )
          }
        ]}
      />
    </ScrollArea>
  );
}
