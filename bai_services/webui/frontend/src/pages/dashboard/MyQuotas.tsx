import { WarningOutlined } from '@ant-design/icons';
import { Flex, Select, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import { quotasQuery, type Quotas } from '../../data/quotas';
import type { DashboardSearch } from './search';
import { UsageBar } from './UsageBar';
import { Widget } from './Widget';

type SlotQuota = Quotas['scopes'][number]['slots'][number];

/** Usage and limits in every scope; the limiting quota of each resource is marked. */
export function MyQuotas({ target }: { target: DashboardSearch }) {
  const { t } = useTranslation();
  const quotas = useQuery(quotasQuery(target));
  return (
    <Widget title={t('dashboard.quotas')} query={quotas}>
      {({ scopes }) =>
        scopes.length === 0
          ? t('dashboard.no-project')
          : scopes.map(scope => (
              <div key={scope.kind} style={{ marginBottom: 12 }}>
                <Typography.Text strong>
                  {t(`dashboard.scope-${scope.kind}`, { name: scope.name })}
                </Typography.Text>
                {scope.slots.map(slot => (
                  <SlotUsage key={slot.slot} slot={slot} />
                ))}
              </div>
            ))
      }
    </Widget>
  );
}

function SlotUsage({ slot }: { slot: SlotQuota }) {
  const { t } = useTranslation();
  const short = (amount: string | null) => amount && shortAmount(slot.slot, amount);
  return (
    <>
      <UsageBar
        name={slot.slot}
        percent={slot.percent}
        text={
          slot.limit === null
            ? t('dashboard.unlimited', { used: short(slot.used) })
            : t('dashboard.used', {
                used: short(slot.used),
                limit: short(slot.limit),
                left: short(slot.left)
              })
        }
      />
      {slot.is_limiting && <Tag icon={<WarningOutlined />}>{t('dashboard.limiting')}</Tag>}
    </>
  );
}

interface GroupResourcesProps {
  target: DashboardSearch;
  onChange: (changes: DashboardSearch) => void;
}

/** Used and free resources of all agents of a resource group. */
export function GroupResources({ target, onChange }: GroupResourcesProps) {
  const { t } = useTranslation();
  const quotas = useQuery(quotasQuery(target));
  const groups = quotas.data?.resource_groups ?? [];
  return (
    <Widget
      title={t('dashboard.group')}
      query={quotas}
      extra={
        <Select
          value={quotas.data?.resource_group ?? null}
          options={groups.map(name => ({ value: name, label: name }))}
          onChange={(group: string | null) => group && onChange({ group })}
          aria-label={t('dashboard.choose-group')}
          placeholder={t('dashboard.choose-group')}
          style={{ minWidth: 110 }}
        />
      }
    >
      {({ resources }) =>
        resources.length === 0 ? (
          t('dashboard.no-agents')
        ) : (
          <Flex vertical gap={4}>
            {resources.map(({ slot, percent, used, free, total }) => (
              <UsageBar
                key={slot}
                name={slot}
                percent={percent}
                text={t('dashboard.resource', {
                  used: shortAmount(slot, used),
                  free: shortAmount(slot, free),
                  total: shortAmount(slot, total)
                })}
              />
            ))}
          </Flex>
        )
      }
    </Widget>
  );
}
