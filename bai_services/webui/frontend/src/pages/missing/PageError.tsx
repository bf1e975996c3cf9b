import { Result } from 'antd';
import type { ErrorComponentProps } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';

/** Replaces a page that failed to render; header and sidebar remain usable. */
export function PageError({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  return (
    <Result status="500" title={t('errors.page')}>
      <ErrorNotice
        error={error instanceof Error ? error : new Error(String(error))}
        onRetry={reset}
      />
    </Result>
  );
}
