import { Alert, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';

/** The command with which a machine joins; its token is shown only once. */
export function JoinCommand({ token }: { token: string }) {
  const { t } = useTranslation();
  const hub = new URL(config.hub, window.location.origin).href.replace(/\/hub\/$/, '');
  return (
    <>
      <Alert
        type="warning"
        showIcon
        title={t('agent-invitations.command-once')}
        style={{ marginBottom: 12 }}
      />
      <Typography.Text code copyable style={{ overflowWrap: 'anywhere' }}>
        {`bai-agent join ${hub} --token ${token}`}
      </Typography.Text>
    </>
  );
}
