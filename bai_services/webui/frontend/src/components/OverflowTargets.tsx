import { useTranslation } from 'react-i18next';
import type { Schemas } from '../data/client';
import { formatDuration, formatSoon } from './time';

/** The resource groups to which a pending session may move by rules of its project, in order. */
export function OverflowTargets({ targets }: { targets: Schemas['OverflowTarget'][] }) {
  const { t, i18n } = useTranslation();
  if (targets.length === 0) {
    return null;
  }
  return (
    <>
      <strong>{t('why.overflow')}</strong>
      <ul style={{ margin: 0, paddingInlineStart: 16 }}>
        {targets.map(({ resource_group: group, after_seconds: seconds, moves_at: at }) => (
          <li key={group}>
            {at === null
              ? t('why.overflow-after', { group, time: formatDuration(seconds, i18n.language) })
              : t('why.overflow-from', { group, time: formatSoon(at, i18n.language) })}
          </li>
        ))}
      </ul>
    </>
  );
}
