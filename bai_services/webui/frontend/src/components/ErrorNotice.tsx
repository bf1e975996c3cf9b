import { Alert, Button } from 'antd';
import { useTranslation } from 'react-i18next';
import { ApiError } from '../data/client';

/** The error message of the API, with a button to retry. */
export function ErrorNotice({ error, onRetry }: { error: Error; onRetry?: () => void }) {
  const { t, i18n } = useTranslation();
  // Messages of the API without a code are in English; the markup must say so.
  const isEnglish = error instanceof ApiError && !error.isTranslated && i18n.language !== 'en';
  return (
    <Alert
      type="error"
      showIcon
      style={{ marginBottom: 12 }}
      title={isEnglish && error.status === 404 ? t('errors.not-found') : error.message}
      action={onRetry && <Button onClick={onRetry}>{t('errors.retry')}</Button>}
    />
  );
}
