import { Alert, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';

/** The link of a new invitation to sign up; it is shown only once. */
export function InvitationLink({ token }: { token: string }) {
  const { t } = useTranslation();
  const link = new URL(`${config.hub}sign-up#${token}`, window.location.origin).href;
  return (
    <>
      <Alert
        type="warning"
        showIcon
        title={t('sign-up-invitations.link-once')}
        style={{ marginBottom: 12 }}
      />
      <Typography.Text copyable style={{ overflowWrap: 'anywhere' }}>
        {link}
      </Typography.Text>
    </>
  );
}
