import { Alert, Button } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../config';
import { meQuery } from '../data/accounts/me';

/** A warning, shown when an administrator requires a signed-in user to change the password. */
export function PasswordBar() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  if (!me?.need_password_change) {
    return null;
  }
  return (
    <Alert
      type="warning"
      showIcon
      title={t('shell.password-change')}
      action={
        <Button size="small" href={`${config.hub}change-password`}>
          {t('settings.change-password')}
        </Button>
      }
      style={{ marginBottom: 8 }}
    />
  );
}
