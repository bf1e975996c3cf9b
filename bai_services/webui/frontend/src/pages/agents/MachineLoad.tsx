import { Alert, Descriptions, Empty, Progress, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import type { Item } from '../../data/entities';
import { factsOf, isConnected, percentOf } from './facts';

/** The load of each CPU core, of the memory, the disk and the network of a machine. */
export function MachineLoad({ agent }: { agent: Item }) {
  const { t, i18n } = useTranslation();
  const { load, notices = [] } = factsOf(agent);
  const bytes = (amount: number | null) =>
    amount === null ? t('agents.unknown') : formatBytes(amount, i18n.language);
  const share = (label: string, used: number | null, total: number | null) => ({
    key: label,
    label,
    children:
      used === null || total === null ? (
        t('agents.unknown')
      ) : (
        <>
          {bytes(used)} / {bytes(total)}
          <Progress
            size="small"
            status="normal"
            percent={percentOf(used, total)}
            aria-label={label}
          />
        </>
      )
  });
  const rate = (amount: number | null) => (amount === null ? bytes(null) : `${bytes(amount)}/s`);
  return (
    <>
      {notices.map(notice => (
        <Alert key={notice} type="warning" showIcon title={notice} style={{ marginBottom: 8 }} />
      ))}
      {load === undefined || !isConnected(agent) ? (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('agents.not-reported')} />
      ) : (
        <>
          <Descriptions
            size="small"
            column={1}
            bordered
            items={[
              share(t('agents.memory'), load.memory_used_bytes, load.memory_bytes),
              share(t('agents.disk'), load.disk_used_bytes, load.disk_bytes),
              {
                key: 'network',
                label: t('agents.network'),
                children: `${t('agents.received')} ${rate(load.network_received_bytes_per_second)}, ${t('agents.sent')} ${rate(load.network_sent_bytes_per_second)}`
              }
            ]}
          />
          <Typography.Title level={5}>{t('agents.per-core')}</Typography.Title>
          <div className="bai-cores">
            {load.cpus_percent.map((percent, core) => (
              <Progress
                key={core}
                size="small"
                status="normal"
                percent={percent}
                format={() => `${core}: ${percent} %`}
                aria-label={`${t('agents.cpu')} ${core}`}
              />
            ))}
          </div>
        </>
      )}
    </>
  );
}
