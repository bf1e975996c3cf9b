import { Button, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { personal } from '../components/personal';
import { config } from '../config';
import { signInAddress, useSignInCheck } from '../data/signInCheck';

// Above AntD's notifications (2050) and the questions in them.
const Z_INDEX = 3000;

/**
 * Hides the page of a user who was signed out (see style.css) until the same user signs in again.
 * The page keeps its forms and their input.
 */
export function SignInDialog() {
  const { t } = useTranslation();
  useSignInCheck();
  return (
    <Modal
      open
      centered
      closable={false}
      keyboard={false}
      mask={{ closable: false }}
      zIndex={Z_INDEX}
      rootClassName="bai-sign-in"
      title={t('errors.signed-out')}
      footer={
        <>
          <Button href={`${config.base}/start`}>{t('errors.discard-page')}</Button>
          <Button type="primary" href={signInAddress} target="_blank" rel="noopener" autoFocus>
            {t('errors.sign-in')}
          </Button>
        </>
      }
    >
      {t('errors.sign-in-again', { name: personal(config.username) })}
    </Modal>
  );
}
