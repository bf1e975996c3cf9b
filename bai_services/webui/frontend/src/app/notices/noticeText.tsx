import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/accounts/me';
import { receivedInvitationsQuery } from '../../data/folders/folders';
import type { Notice } from '../../data/notices';

type Shown = Pick<Notice, 'key' | 'kind' | 'name' | 'info' | 'session' | 'code'>;

export function noticeText(t: TFunction, { kind, name, info, code }: Shown) {
  if (code !== undefined) {
    return t('notices.failed-code', { name, code });
  }
  return kind === 'share'
    ? t('notices.share', { name, user: info })
    : t(`notices.${kind}`, { name });
}

/** Explanation below the text; the text of an invitation already contains the inviter. */
export const noticeInfo = ({ kind, info }: Shown) => (kind === 'share' ? '' : info);

interface NoticeLinkProps {
  notice: Shown;
  onNavigate?: () => void;
}

/** Link to the session of a notice, or to an invitation that is not answered yet. */
export function NoticeLink({ notice, onNavigate }: NoticeLinkProps) {
  const { t } = useTranslation();
  return notice.session ? (
    <Link
      to="/sessions"
      search={{ tab: 'all', session: notice.session }}
      {...(onNavigate ? { onClick: onNavigate } : {})}
    >
      {t('notices.show')}
    </Link>
  ) : (
    <InvitationLink notice={notice} {...(onNavigate ? { onNavigate } : {})} />
  );
}

function InvitationLink({ notice, onNavigate }: NoticeLinkProps) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { data: pending } = useQuery({
    ...receivedInvitationsQuery(me?.id ?? ''),
    enabled: me !== undefined
  });
  return (
    pending?.some(({ id }) => id === notice.key) && (
      <Link to="/data" {...(onNavigate ? { onClick: onNavigate } : {})}>
        {t('notices.answer')}
      </Link>
    )
  );
}
