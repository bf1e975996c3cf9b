import { lazy, Suspense } from 'react';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatTime } from '../components/time';
import { UserText } from '../components/UserText';
import { announcementsQuery, useDismissAnnouncement } from '../data/announcements';
import { maintenancesQuery, type CurrentMaintenance } from '../data/maintenances';
import { loadScript } from '../data/scripts';
import { isolated } from '../i18n/userText';
import { Banner } from './Banner';

const MarkdownPreview = lazy(() =>
  loadScript(() => import('../pages/data/preview/markdown/MarkdownPreview')).then(module => ({
    default: module.MarkdownPreview
  }))
);
const TYPES = new Map<string, 'info' | 'warning' | 'error'>([
  ['warning', 'warning'],
  ['critical', 'error']
]);
// The details of further, less important banners are folded, so that the page remains visible.
const MAX_UNFOLDED = 1;

/**
 * The maintenances of `maintenancesQuery`, and the announcements that the user has not dismissed;
 * nothing if they were never loaded.
 */
export function Banners() {
  const { t } = useTranslation();
  const { data: maintenances = [] } = useQuery(maintenancesQuery);
  const { data: announcements = [] } = useQuery(announcementsQuery);
  const dismiss = useDismissAnnouncement();
  const areFew = maintenances.length + announcements.length <= MAX_UNFOLDED;
  return (
    <>
      {maintenances.length > 0 && (
        <section aria-label={t('maintenances.region')} className="bai-banners">
          {maintenances.map(maintenance => (
            <MaintenanceBanner key={maintenance.id} maintenance={maintenance} areFew={areFew} />
          ))}
        </section>
      )}
      {announcements.length > 0 && (
        <section aria-label={t('announcements.region')} className="bai-banners">
          {announcements.map(({ id, title, text, level }) => (
            <Banner
              key={id}
              id={id}
              type={TYPES.get(level) ?? 'info'}
              title={<UserText text={title} />}
              isUnfolded={areFew || level === 'critical'}
              onDismiss={() => dismiss.mutate(id)}
              dismissLabel={t('announcements.dismiss', { title })}
            >
              {text && (
                <Suspense>
                  <MarkdownPreview text={text} />
                </Suspense>
              )}
            </Banner>
          ))}
        </section>
      )}
    </>
  );
}

interface MaintenanceBannerProps {
  maintenance: CurrentMaintenance;
  areFew: boolean;
}

function MaintenanceBanner({ maintenance, areFew }: MaintenanceBannerProps) {
  const { t, i18n } = useTranslation();
  const { id, scope, target, mode, reason, is_active: isActive } = maintenance;
  const { starts_at: start, ends_at: end } = maintenance;
  const phase = isActive ? 'now' : 'planned';
  const texts = {
    start: formatTime(start, i18n.language),
    end: end ? formatTime(end, i18n.language) : '',
    reason: isolated(reason)
  };
  return (
    <Banner
      // A planned maintenance that the user has folded is shown again when it begins.
      id={`${id}-${phase}`}
      type={isActive ? 'warning' : 'info'}
      title={
        t(`maintenances.${phase}-${scope}`, { target: isolated(target ?? '') }) +
        (isActive ? '' : `: ${texts.start}`)
      }
      isUnfolded={areFew || isActive}
    >
      <div>{t(`maintenances.period${end ? '' : '-open'}`, texts)}</div>
      <div>{t(`maintenances.effect-${mode}`)}</div>
    </Banner>
  );
}
