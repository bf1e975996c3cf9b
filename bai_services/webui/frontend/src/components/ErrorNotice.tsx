import { Alert, Button } from 'antd';
import { useTranslation } from 'react-i18next';
import { ApiError } from '../data/client';

/** The error message of the API, with a button to retry. */
export function ErrorNotice({ error, onRetry }: { error: Error; onRetry?: () => void }) {
  const { t } = useTranslation();
  const isUnreachable = error instanceof ApiError && error.status === 0;
  return (
    <Alert
      type="error"
      showIcon
      title={isUnreachable ? t('errors.unreachable') : error.message}
      action={onRetry && <Button onClick={onRetry}>{t('errors.retry')}</Button>}
    />
  );
}
