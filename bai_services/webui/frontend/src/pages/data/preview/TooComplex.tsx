import { Alert } from 'antd';
import { useTranslation } from 'react-i18next';

/** Notice that a file has no preview, because parsing it takes too long. */
export function TooComplex() {
  const { t } = useTranslation();
  return <Alert type="info" showIcon title={t('preview.too-complex')} />;
}
