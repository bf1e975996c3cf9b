import { Alert, Button, Space } from 'antd';
import { DownloadOutlined, SafetyCertificateOutlined } from '@ant-design/icons';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { meQuery } from '../../data/accounts/me';
import { useVerifyChain } from '../../data/audit';
import { jsonLinesUrl } from '../../data/csv';

const VERIFIERS: readonly string[] = ['superadmin', 'monitor'];

/** Buttons to export the log as JSON lines and to verify its hash chain, with the result. */
export function VerifyChain() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const verify = useVerifyChain();
  const { data: result } = verify;
  return (
    <div>
      <Space wrap>
        <Button icon={<DownloadOutlined />} href={jsonLinesUrl('/audit-log')} download>
          {t('audit-log.export')}
        </Button>
        {me && VERIFIERS.includes(me.role) && (
          <Button
            icon={<SafetyCertificateOutlined />}
            loading={verify.isPending}
            onClick={() => verify.mutate()}
          >
            {t('audit-log.verify')}
          </Button>
        )}
      </Space>
      <div aria-live="polite">
        {verify.error && <ErrorNotice error={verify.error} />}
        {result?.problem && (
          <Alert
            type="error"
            showIcon
            style={{ marginTop: 8 }}
            title={t('audit-log.damaged')}
            description={result.problem.message}
          />
        )}
        {result && !result.problem && (
          <Alert
            type="success"
            showIcon
            style={{ marginTop: 8 }}
            title={t('audit-log.verified', { count: result.checked })}
            description={
              <span style={{ overflowWrap: 'anywhere' }}>
                {t('audit-log.verified-head', { position: result.position, hash: result.hash })}
              </span>
            }
          />
        )}
      </div>
    </div>
  );
}
