import { Alert } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatTime } from '../components/time';
import { maintenancesQuery } from '../data/maintenances';
import { isolated } from '../i18n/userText';

/** The maintenances of `maintenancesQuery`; nothing if they were never loaded. */
export function MaintenanceBanner() {
  const { t, i18n } = useTranslation();
  const { data: maintenances = [] } = useQuery(maintenancesQuery);
  if (maintenances.length === 0) {
    return null;
  }
  return (
    <section aria-label={t('maintenances.region')} style={{ display: 'grid', gap: 8 }}>
      {maintenances.map(({ id, scope, target, mode, reason, is_active: isActive, ...period }) => {
        const texts = {
          start: formatTime(period.starts_at, i18n.language),
          end: period.ends_at ? formatTime(period.ends_at, i18n.language) : '',
          reason: isolated(reason)
        };
        return (
          <Alert
            key={id}
            showIcon
            type={isActive ? 'warning' : 'info'}
            title={t(`maintenances.${isActive ? 'now' : 'planned'}-${scope}`, {
              target: isolated(target ?? '')
            })}
            description={
              <>
                <div>{t(`maintenances.period${period.ends_at ? '' : '-open'}`, texts)}</div>
                <div>{t(`maintenances.effect-${mode}`)}</div>
              </>
            }
            style={{ marginBottom: 8 }}
          />
        );
      })}
    </section>
  );
}
