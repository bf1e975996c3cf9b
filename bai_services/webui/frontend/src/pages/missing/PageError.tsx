import type { ErrorComponentProps } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { PageResult } from '../../components/PageResult';
import { ScriptError } from '../../data/scripts';

/** Replaces a page that failed to render; header and sidebar remain usable. */
export function PageError({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  return (
    <PageResult status="500" title={t('errors.page')}>
      <ErrorNotice
        error={error instanceof Error ? error : new Error(String(error))}
        onRetry={error instanceof ScriptError ? () => location.reload() : reset}
      />
    </PageResult>
  );
}
