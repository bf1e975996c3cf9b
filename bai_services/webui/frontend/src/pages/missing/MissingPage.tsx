import { Button } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { PageResult } from '../../components/PageResult';

export function MissingPage() {
  const { t } = useTranslation();
  return (
    <PageResult status="404" title={t('errors.missing')} help={t('errors.missing-help')}>
      <Link to="/start">
        <Button type="primary">{t('pages.start')}</Button>
      </Link>
    </PageResult>
  );
}
