import type { ReactNode } from 'react';
import { Alert, App, Button, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { tokenCountQuery, useRollBack, type Endpoint } from '../../../data/serving/endpoints';
import { reasonText } from '../../../i18n/reasonText';
import { useRights } from '../rights';
import { usePromotable } from '../usePromotable';
import type { ChangeSearch } from './EndpointDrawer';

interface StateNoticeProps {
  endpoint: Endpoint;
  onChange: ChangeSearch;
}

/** Notice about the state of an endpoint, with actions; nothing if the endpoint serves. */
export function StateNotice({ endpoint, onChange }: StateNoticeProps) {
  const { t, i18n } = useTranslation();
  const { isOwner, isManager } = useRights(endpoint);
  const { data: tokens } = useQuery({
    ...tokenCountQuery(endpoint.id),
    enabled: isManager && !endpoint.is_public
  });
  const isWaiting = usePromotable(endpoint)?.is_automatic === false;
  const { status, problem, problem_coded: coded, target_revision: number } = endpoint;
  const detail = problem ? reasonText(i18n, { message: problem, coded }) : undefined;
  const show = (panel: string, text: string) => (
    <Button size="small" onClick={() => onChange({ panel })}>
      {text}
    </Button>
  );
  if (status === 'failed') {
    const action = (
      <Flex gap="small">
        {show('replicas', t('endpoints.tab-replicas'))}
        {isManager && <Retry endpoint={endpoint} />}
      </Flex>
    );
    return (
      <Notice type="error" title={t('endpoints.notice-failed')} text={detail} action={action} />
    );
  }
  if (status === 'paused' || status === 'stopping') {
    return <Notice type="info" title={t(`endpoints.notice-${status}`)} text={detail} />;
  }
  if (status === 'deploying') {
    const action = show('replicas', t('endpoints.tab-replicas'));
    const title = t(`endpoints.notice-${isWaiting ? 'waiting' : 'deploying'}`, { number });
    return (
      <Notice type={problem ? 'warning' : 'info'} title={title} text={detail} action={action} />
    );
  }
  if (isOwner && tokens === 0 && !endpoint.is_public) {
    const action = show('tokens', t('endpoint-tokens.create'));
    const title = t('endpoints.notice-no-token');
    return <Notice type="warning" title={title} text={detail} action={action} />;
  }
  if (problem) {
    return <Notice type="warning" title={t('endpoints.notice-problem')} text={detail} />;
  }
  return null;
}

/** Restart the rollout of a failed revision. */
function Retry({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const rollBack = useRollBack(endpoint.id);
  const retry = () =>
    rollBack.mutate(endpoint.target_revision, {
      onError: error => void message.error(error.message)
    });
  return (
    <Button size="small" loading={rollBack.isPending} onClick={retry}>
      {t('endpoints.retry')}
    </Button>
  );
}

interface NoticeProps {
  type: 'error' | 'info' | 'warning';
  title: string;
  text?: string | undefined;
  action?: ReactNode;
}

const Notice = ({ type, title, text, action }: NoticeProps) => (
  <Alert
    type={type}
    showIcon
    role="status"
    title={title}
    {...(text ? { description: text } : {})}
    {...(action ? { action } : {})}
    style={{ marginBottom: 12 }}
  />
);
