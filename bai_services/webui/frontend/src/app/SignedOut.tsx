import { Button, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { useIsSignedOut } from '../data/signedOut';

/** Says that the sign-in has ended, instead of an error of each request. */
export function SignedOut() {
  const { t } = useTranslation();
  return (
    <Modal
      open={useIsSignedOut()}
      title={t('shell.signed-out')}
      closable={false}
      keyboard={false}
      mask={{ closable: false }}
      footer={
        // The server redirects to the sign-in page, and afterwards back to this address.
        <Button type="primary" autoFocus onClick={() => window.location.reload()}>
          {t('shell.sign-in-again')}
        </Button>
      }
    >
      {t('shell.signed-out-help')}
    </Modal>
  );
}
