import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { Tag, type TagColor } from '../../components/Tag';
import type { Endpoint } from '../../data/serving/endpoints';
import { reasonText } from '../../i18n/reasonText';

const COLORS: Record<string, TagColor | undefined> = {
  ready: 'green',
  deploying: 'blue',
  scaling: 'cyan',
  paused: 'orange',
  failed: 'red',
  stopping: 'orange'
};

interface EndpointStatusProps {
  endpoint: Endpoint;
  showsProblem?: boolean;
}

/** The status of an endpoint with its last problem. */
export function EndpointStatus({ endpoint, showsProblem = true }: EndpointStatusProps) {
  const { t, i18n } = useTranslation();
  const { status, problem, problem_coded: coded } = endpoint;
  return (
    <>
      <Tag color={COLORS[status]}>{t(`endpoints.status-${status}`)}</Tag>
      {showsProblem && problem && (
        <Typography.Text type="secondary" style={{ display: 'block' }}>
          {reasonText(i18n, { message: problem, coded })}
        </Typography.Text>
      )}
    </>
  );
}
