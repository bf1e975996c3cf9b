import { Segmented, Select } from 'antd';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import type { Quotas } from '../../data/sessions/quotas';
import type { Amount } from './resources';
import { UsageBar } from './UsageBar';

interface ResourceBarsProps {
  amounts: readonly Amount[];
  isFree: boolean;
}

/** The used or the free part of each resource, with a bar of segments. */
export function ResourceBars({ amounts, isFree }: ResourceBarsProps) {
  const { t } = useTranslation();
  return (
    <div className="bai-resource-bars">
      {amounts.map(({ slot, used, free, total, percent }) => {
        const part = shortAmount(slot, (isFree ? free : used) ?? '');
        const text =
          total === null
            ? t('dashboard.unlimited', { used: shortAmount(slot, used) })
            : t(isFree ? 'dashboard.part-free' : 'dashboard.part-used', {
                part,
                total: shortAmount(slot, total)
              });
        return (
          <UsageBar
            key={slot}
            name={slot}
            percent={percent}
            text={text}
            isFree={isFree}
            hasSegments
          />
        );
      })}
    </div>
  );
}

interface UsedFreeProps {
  isFree: boolean;
  onChange: (isFree: boolean) => void;
}

export function UsedFreeSwitch({ isFree, onChange }: UsedFreeProps) {
  const { t } = useTranslation();
  return (
    <Segmented
      size="small"
      aria-label={t('dashboard.used-or-free')}
      value={isFree ? 'free' : 'used'}
      onChange={value => onChange(value === 'free')}
      options={['used', 'free'].map(value => ({ value, label: t(`dashboard.show-${value}`) }))}
    />
  );
}

interface GroupSelectProps {
  quotas: Quotas | undefined;
  onChange: (group: string) => void;
}

/** Chooses a resource group that the user may use. */
export function GroupSelect({ quotas, onChange }: GroupSelectProps) {
  const { t } = useTranslation();
  return (
    <Select
      size="small"
      value={quotas?.resource_group ?? null}
      options={(quotas?.resource_groups ?? []).map(name => ({ value: name, label: name }))}
      onChange={(group: string | null) => group && onChange(group)}
      aria-label={t('dashboard.choose-group')}
      placeholder={t('dashboard.choose-group')}
      style={{ minWidth: 110 }}
    />
  );
}
