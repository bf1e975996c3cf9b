import { useState } from 'react';
import { WarningOutlined } from '@ant-design/icons';
import { Button, Flex, Tag, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import { scopeTitle, usageText } from '../../components/storageScope';
import { NEARLY_FULL_PERCENT, type Quotas } from '../../data/sessions/quotas';
import { GroupSelect, ResourceBars, UsedFreeSwitch } from './ResourceBars';
import { amountsOf, omittedQuotas, quotaScopes } from './resources';
import type { DashboardSearch } from './search';
import { UsageBar } from './UsageBar';
import { Widget, type DashboardResult } from './Widget';

type SlotQuota = Quotas['scopes'][number]['slots'][number];

/**
 * Usage and limits in every scope; the limiting quota of each resource is marked. A button also
 * shows the quotas without limit and usage.
 */
export function MyQuotas({ query }: { query: DashboardResult }) {
  const { t } = useTranslation();
  return (
    <Widget title={t('dashboard.quotas')} help={t('dashboard.help-quotas')} query={query}>
      {({ quotas }) =>
        !quotas || quotas.scopes.length === 0 ? (
          t('dashboard.no-project')
        ) : (
          <QuotaScopes quotas={quotas} />
        )
      }
    </Widget>
  );
}

function QuotaScopes({ quotas }: { quotas: Quotas }) {
  const { t } = useTranslation();
  const [showsAll, setShowsAll] = useState(false);
  const scopes = quotaScopes(quotas, showsAll);
  const omitted = omittedQuotas(quotas);
  return (
    <>
      {scopes.length === 0 && <p>{t('dashboard.no-limits')}</p>}
      {scopes.map(scope => (
        <div key={scope.kind} style={{ marginBottom: 12 }}>
          <Typography.Text strong>
            {t(`dashboard.scope-${scope.kind}`, { name: scope.name })}
          </Typography.Text>
          {scope.slots.map(slot => (
            <SlotUsage key={slot.slot} slot={slot} />
          ))}
        </div>
      ))}
      {omitted > 0 && (
        <Button
          type="link"
          style={{ padding: 0 }}
          aria-expanded={showsAll}
          onClick={() => setShowsAll(!showsAll)}
        >
          {showsAll ? t('dashboard.show-fewer') : t('dashboard.show-all', { count: omitted })}
        </Button>
      )}
    </>
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
      {slot.is_limiting && (
        <Tag icon={(slot.percent ?? 0) >= NEARLY_FULL_PERCENT && <WarningOutlined />}>
          {t('dashboard.limiting')}
        </Tag>
      )}
    </>
  );
}

/** Usage and limits of the folders of the user and the user's projects, on each storage host. */
export function MyStorage({ query }: { query: DashboardResult }) {
  const { t, i18n } = useTranslation();
  return (
    <Widget title={t('dashboard.storage')} help={t('dashboard.help-storage')} query={query}>
      {({ storage }) =>
        storage.length === 0
          ? t('dashboard.no-storage')
          : storage.map(scope => (
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
  query: DashboardResult;
  panel: 'mine' | 'group';
  onChange: (changes: DashboardSearch) => void;
}

/** Used and free resources in a resource group: of the user (`mine`) or of the agents (`group`). */
export function GroupResources({ query, panel, onChange }: GroupResourcesProps) {
  const { t } = useTranslation();
  const [isFree, setIsFree] = useState(false);
  return (
    <Widget title={t(`dashboard.panel-${panel}`)} help={t(`dashboard.help-${panel}`)} query={query}>
      {({ quotas }) => {
        const amounts = quotas ? amountsOf(quotas, panel) : [];
        return (
          <>
            <Flex wrap gap="small" style={{ marginBottom: 12 }}>
              <GroupSelect quotas={quotas ?? undefined} onChange={group => onChange({ group })} />
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
