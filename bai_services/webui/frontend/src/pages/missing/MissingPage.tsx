import { Button, Result } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';

export function MissingPage() {
  const { t } = useTranslation();
  return (
    <Result
      status="404"
      title={t('errors.missing')}
      subTitle={t('errors.missing-help')}
      extra={
        <Link to="/start">
          <Button type="primary">{t('pages.start')}</Button>
        </Link>
      }
    />
  );
}
