import { Link } from '@tanstack/react-router';
import type { TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import type { Notice } from '../../data/notices';

type Named = Pick<Notice, 'kind' | 'name' | 'session' | 'code'>;

export const noticeText = (t: TFunction, { kind, name, code }: Named) =>
  code === undefined ? t(`notices.${kind}`, { name }) : t('notices.failed-code', { name, code });

/** Link to the session of a notice; without a session, to the page of folders. */
export function NoticeLink({ notice, onUse }: { notice: Named; onUse?: () => void }) {
  const { t } = useTranslation();
  return notice.session ? (
    <Link
      to="/sessions"
      search={{ tab: 'all', session: notice.session }}
      {...(onUse ? { onClick: onUse } : {})}
    >
      {t('notices.show')}
    </Link>
  ) : (
    <Link to="/data" {...(onUse ? { onClick: onUse } : {})}>
      {t('notices.answer')}
    </Link>
  );
}
