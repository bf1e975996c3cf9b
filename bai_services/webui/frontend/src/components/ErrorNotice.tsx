import { Alert, Button } from 'antd';
import { useTranslation } from 'react-i18next';

/** The error message of the API, with a button to retry. */
export function ErrorNotice({ error, onRetry }: { error: Error; onRetry?: () => void }) {
  const { t } = useTranslation();
  return (
    <Alert
      type="error"
      showIcon
      style={{ marginBottom: 12 }}
      title={error.message}
      action={onRetry && <Button onClick={onRetry}>{t('errors.retry')}</Button>}
    />
  );
}
