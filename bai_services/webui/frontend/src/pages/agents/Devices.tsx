import { Progress, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { numberOf } from '../../components/amount';
import { formatBytes } from '../../components/bytes';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import { allocationsQuery, type LedgerEntry } from '../../data/cluster/agents';
import { devicesOf, type Device } from './facts';
import type { Item } from '../../data/entities';

/** The devices of an agent with their last measurements, and the sessions that use them. */
export function Devices({ agent }: { agent: Item }) {
  const { t, i18n } = useTranslation();
  const { data: allocations = [] } = useQuery(allocationsQuery(String(agent['id'])));
  const measured = (value: number | undefined, unit: string) =>
    value === undefined ? t('agents.unknown') : `${Math.round(value)} ${unit}`;
  return (
    <ScrollArea label={t('agents.devices')}>
      <CardTable<Device>
        rowKey="id"
        size="small"
        pagination={false}
        dataSource={devicesOf(agent)}
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
            className: 'bai-nowrap',
            render: (_, device) => `${device.used} / ${device.capacity}`
          },
          {
            key: 'holders',
            title: t('agents.used-by'),
            render: (_, device) => (
              <Holders
                device={device}
                held={allocations.filter(entry => entry.device_id === device.id)}
              />
            )
          },
          {
            key: 'memory',
            title: t('agents.memory'),
            className: 'bai-nowrap',
            render: (_, { memory_bytes: total, facts: { usage } }) =>
              total === null
                ? t('agents.unknown')
                : `${usage?.memory_used_bytes === undefined ? t('agents.unknown') : formatBytes(usage.memory_used_bytes, i18n.language)} / ${formatBytes(total, i18n.language)}`
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
                  status="normal"
                  percent={Math.round(usage.utilization_percent)}
                  aria-label={t('agents.utilization')}
                />
              )
          },
          {
            key: 'temperature',
            title: t('agents.temperature'),
            className: 'bai-nowrap',
            render: (_, { facts }) => measured(facts.usage?.temperature_celsius, '°C')
          },
          {
            key: 'power',
            title: t('agents.power'),
            className: 'bai-nowrap',
            render: (_, { facts }) => measured(facts.usage?.power_watts, 'W')
          },
          {
            key: 'enforcement',
            title: t('agents.enforcement'),
            render: (_, { facts }) =>
              facts.enforcement ? t(`enforcement.${facts.enforcement}`) : t('agents.unknown')
          }
        ]}
      />
    </ScrollArea>
  );
}

/** The visible sessions that use a device, and the amount that all other sessions use. */
function Holders({ device, held }: { device: Device; held: LedgerEntry[] }) {
  const { t } = useTranslation();
  const seen = held.reduce((sum, { amount }) => sum + numberOf(amount), 0);
  // Round the difference, which is inexact; amounts have at most two decimals.
  const unseen = Math.round(100 * (numberOf(device.used) - seen)) / 100;
  return (
    <>
      {held.map(entry => (
        <div key={entry.id}>
          <Link to="/sessions" search={{ tab: 'all', session: entry.session_id }}>
            {entry.session}
          </Link>{' '}
          ({personal(entry.owner)}): {entry.amount}
        </div>
      ))}
      {unseen > 0 && <div>{t('agents.others', { amount: unseen })}</div>}
      {held.length === 0 && unseen <= 0 && '–'}
    </>
  );
}
