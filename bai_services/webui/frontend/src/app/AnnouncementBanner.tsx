import { lazy, Suspense } from 'react';
import { Alert } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { UserText } from '../components/UserText';
import { announcementsQuery, useDismissAnnouncement } from '../data/announcements';
import { loadScript } from '../data/scripts';

const MarkdownPreview = lazy(() =>
  loadScript(() => import('../pages/data/preview/markdown/MarkdownPreview')).then(module => ({
    default: module.MarkdownPreview
  }))
);
const TYPES = new Map<string, 'info' | 'warning' | 'error'>([
  ['warning', 'warning'],
  ['critical', 'error']
]);

/** The announcements that the user has not dismissed; nothing if they were never loaded. */
export function AnnouncementBanner() {
  const { t } = useTranslation();
  const { data: announcements = [] } = useQuery(announcementsQuery);
  const dismiss = useDismissAnnouncement();
  if (announcements.length === 0) {
    return null;
  }
  return (
    <section aria-label={t('announcements.region')} style={{ display: 'grid', gap: 8 }}>
      {announcements.map(({ id, title, text, level }) => (
        <Alert
          key={id}
          showIcon
          type={TYPES.get(level) ?? 'info'}
          title={<UserText text={title} />}
          description={
            text && (
              <Suspense>
                <MarkdownPreview text={text} />
              </Suspense>
            )
          }
          closable={{
            'aria-label': t('announcements.dismiss', { title }),
            onClose: () => dismiss.mutate(id)
          }}
          style={{ marginBottom: 8 }}
        />
      ))}
    </section>
  );
}
