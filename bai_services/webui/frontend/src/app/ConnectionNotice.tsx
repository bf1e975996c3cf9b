import { Alert, Button } from 'antd';
import { useTranslation } from 'react-i18next';
import { useConnection } from '../data/connection';
import { retryConnection } from '../data/events';

/** Notice of a lost connection. The notice covers open drawers and does not block the page. */
export function ConnectionNotice() {
  const { t } = useTranslation();
  const { state } = useConnection();
  return (
    <div aria-live="polite" className="bai-connection">
      {state === 'lost' && (
        <Alert
          type="warning"
          showIcon
          title={t('errors.connection-lost')}
          description={t('errors.connection-lost-help')}
          action={<Button onClick={retryConnection}>{t('errors.retry')}</Button>}
        />
      )}
    </div>
  );
}
