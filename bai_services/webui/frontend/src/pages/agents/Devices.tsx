import { Progress, Table, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ScrollArea } from '../../components/ScrollArea';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { entitiesQuery } from '../../data/entities';

const MAX_DEVICES = 200;

interface Device {
  id: string;
  model: string;
  index: number;
  memory_bytes: number | null;
  capacity: string;
  used: string;
  is_healthy: boolean;
  is_simulated: boolean;
  facts: {
    enforcement?: string;
    shares_withheld?: string;
    usage?: {
      utilization_percent?: number;
      memory_used_bytes?: number;
      temperature_celsius?: number;
      power_watts?: number;
    };
  };
}

/** The devices of an agent with their allocations and measured values. */
export function Devices({ agent }: { agent: string }) {
  const { t, i18n } = useTranslation();
  const filters = { agent_id: agent };
  const devices = useQuery(
    entitiesQuery('/devices', { limit: MAX_DEVICES, offset: 0, sort: 'index', filters })
  );
  const measured = (value: number | undefined, unit: string) =>
    value === undefined ? t('agents.unknown') : `${Math.round(value)} ${unit}`;
  return (
    <>
      <Typography.Title level={5}>{t('agents.devices')}</Typography.Title>
      {devices.error && <ErrorNotice error={devices.error} />}
      <ScrollArea label={t('agents.devices')}>
        <Table<Device>
          rowKey="id"
          size="small"
          loading={devices.isPending}
          pagination={false}
          dataSource={(devices.data?.items ?? []) as unknown as Device[]}
          locale={{ emptyText: t('agents.no-devices') }}
          columns={[
            {
              key: 'model',
              title: t('agents.device'),
              render: (_, device) => (
                <>
                  {device.index}: {device.model}{' '}
                  {device.is_simulated && <Tag>{t('agents.simulated')}</Tag>}
                  {!device.is_healthy && <Tag color="error">{t('agents.unhealthy')}</Tag>}
                  {device.facts.shares_withheld && (
                    <Typography.Paragraph type="secondary" style={{ margin: 0 }}>
                      {device.facts.shares_withheld}
                    </Typography.Paragraph>
                  )}
                </>
              )
            },
            {
              key: 'used',
              title: t('agents.allocated'),
              render: (_, device) => `${device.used} / ${device.capacity}`
            },
            {
              key: 'memory',
              title: t('agents.memory'),
              render: (_, device) =>
                device.memory_bytes === null
                  ? t('agents.unknown')
                  : `${formatBytes(device.facts.usage?.memory_used_bytes ?? 0, i18n.language)} / ${formatBytes(device.memory_bytes, i18n.language)}`
            },
            {
              key: 'busy',
              title: t('agents.utilization'),
              render: (_, { facts: { usage } }) =>
                usage?.utilization_percent === undefined ? (
                  t('agents.unknown')
                ) : (
                  <Progress
                    size="small"
                    percent={Math.round(usage.utilization_percent)}
                    aria-label={t('agents.utilization')}
                  />
                )
            },
            {
              key: 'temperature',
              title: t('agents.temperature'),
              render: (_, { facts }) => measured(facts.usage?.temperature_celsius, '°C')
            },
            {
              key: 'power',
              title: t('agents.power'),
              render: (_, { facts }) => measured(facts.usage?.power_watts, 'W')
            },
            {
              key: 'enforcement',
              title: t('agents.enforcement'),
              render: (_, { facts }) => facts.enforcement ?? t('agents.unknown')
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}
