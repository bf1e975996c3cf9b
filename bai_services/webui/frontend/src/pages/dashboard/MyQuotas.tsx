import { useState } from 'react';
import { WarningOutlined } from '@ant-design/icons';
import { Flex, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import { scopeTitle, usageText } from '../../components/storageScope';
import { ownQuotasQuery } from '../../data/folders/folders';
import { quotasQuery, type Quotas } from '../../data/sessions/quotas';
import { GroupSelect, ResourceBars, UsedFreeSwitch } from './ResourceBars';
import { amountsOf } from './resources';
import type { DashboardSearch } from './search';
import { UsageBar } from './UsageBar';
import { Widget, WIDGET_REFRESH_MILLIS } from './Widget';

type SlotQuota = Quotas['scopes'][number]['slots'][number];

/** Usage and limits in every scope; the limiting quota of each resource is marked. */
export function MyQuotas({ target }: { target: DashboardSearch }) {
  const { t } = useTranslation();
  const quotas = useQuery({ ...quotasQuery(target), refetchInterval: WIDGET_REFRESH_MILLIS });
  return (
    <Widget title={t('dashboard.quotas')} help={t('dashboard.help-quotas')} query={quotas}>
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

/** Usage and limits of the folders of the user and the user's projects, on each storage host. */
export function MyStorage() {
  const { t, i18n } = useTranslation();
  const quotas = useQuery({ ...ownQuotasQuery, refetchInterval: WIDGET_REFRESH_MILLIS });
  return (
    <Widget title={t('dashboard.storage')} help={t('dashboard.help-storage')} query={quotas}>
      {scopes =>
        scopes.length === 0
          ? t('dashboard.no-storage')
          : scopes.map(scope => (
              <UsageBar
                key={`${scope.host} ${scope.scope}`}
                name={`${scope.host} · ${scopeTitle(t, scope)}`}
                percent={scope.percent}
                text={usageText(t, i18n.language, scope)}
              />
            ))
      }
    </Widget>
  );
}

interface GroupResourcesProps {
  target: DashboardSearch;
  onChange: (changes: DashboardSearch) => void;
}

/** Used and free resources in a resource group: of the user (`mine`) or of the agents (`group`). */
export function GroupResources({
  target,
  onChange,
  panel
}: GroupResourcesProps & { panel: 'mine' | 'group' }) {
  const { t } = useTranslation();
  const [isFree, setIsFree] = useState(false);
  const quotas = useQuery({ ...quotasQuery(target), refetchInterval: WIDGET_REFRESH_MILLIS });
  return (
    <Widget
      title={t(`dashboard.panel-${panel}`)}
      help={t(`dashboard.help-${panel}`)}
      query={quotas}
    >
      {data => {
        const amounts = amountsOf(data, panel);
        return (
          <>
            <Flex wrap gap="small" style={{ marginBottom: 12 }}>
              <GroupSelect quotas={data} onChange={group => onChange({ group })} />
              <UsedFreeSwitch isFree={isFree} onChange={setIsFree} />
            </Flex>
            {amounts.length === 0 ? (
              t('dashboard.no-agents')
            ) : (
              <ResourceBars amounts={amounts} isFree={isFree} />
            )}
          </>
        );
      }}
    </Widget>
  );
}
