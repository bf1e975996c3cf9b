import { useEffect } from 'react';
import { App, Button, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { config } from '../config';
import { OTHER_USER } from '../data/connection';
import { queries } from '../data/queries';
import { PageResult } from '../components/PageResult';

const ACCOUNT_REASONS: readonly string[] = ['inactive', 'deleted', 'address'];

/**
 * Replaces a page whose user may not sign in again, or whose browser is used by another user;
 * deletes the cached data.
 */
export function SignedOut({ reason }: { reason: string }) {
  const { t } = useTranslation();
  const { message, notification } = App.useApp();
  useEffect(() => {
    queries.clear();
    // Messages and dialogs are outside of the page, so they are not replaced with it.
    message.destroy();
    notification.destroy();
    Modal.destroyAll();
    if (reason === OTHER_USER) {
      location.replace(`${config.base}/start`);
    }
  }, [message, notification, reason]);
  const isRefused = ACCOUNT_REASONS.includes(reason);
  const help = isRefused ? `signed-out-${reason}` : 'signed-out-help';
  const signIn = () => {
    if (isRefused) {
      // Sign out of the Hub, too. Otherwise no other account could sign in.
      location.assign(`${config.hub}logout`);
    } else {
      // The reload redirects to the sign-in, and from there back to this page.
      location.reload();
    }
  };
  return (
    <main>
      <PageResult status="403" title={t('errors.signed-out')} help={t(`errors.${help}`)}>
        <Button type="primary" onClick={signIn}>
          {t('errors.sign-in')}
        </Button>
      </PageResult>
    </main>
  );
}
