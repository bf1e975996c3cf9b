import { Button } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { PageResult } from './PageResult';

/** Error that replaces a page which the user is not permitted to open. */
export function Forbidden() {
  const { t } = useTranslation();
  return (
    <PageResult status="403" title={t('errors.forbidden')} help={t('errors.forbidden-help')}>
      <Link to="/start">
        <Button type="primary">{t('pages.start')}</Button>
      </Link>
    </PageResult>
  );
}
