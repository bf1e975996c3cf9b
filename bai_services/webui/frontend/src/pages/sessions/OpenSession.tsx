import { useQuery } from '@tanstack/react-query';
import { Button, type ButtonProps } from 'antd';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/accounts/me';
import { serverUrl, type Session } from '../../data/sessions/sessions';

/**
 * The link to a running session, only for its owner: not even administrators may open another
 * user's session.
 */
export function OpenSession({ session, ...props }: { session: Session } & ButtonProps) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const url = serverUrl(session);
  if (!url || session.owner !== me?.username) {
    return null;
  }
  return (
    <Button href={url} target="_blank" rel="noopener" {...props}>
      {t('sessions.open')}
    </Button>
  );
}
