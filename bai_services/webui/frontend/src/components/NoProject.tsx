import { Alert } from 'antd';
import { useTranslation } from 'react-i18next';

/** Explains to a user without a project why no session can be started. */
export function NoProject() {
  const { t } = useTranslation();
  return <Alert type="info" showIcon title={t('launcher.no-project')} />;
}
