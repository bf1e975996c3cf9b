import { App, Button, Flex, List, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { Tag, type TagColor } from '../../../components/Tag';
import { formatTime } from '../../../components/time';
import {
  revisionsQuery,
  useRollBack,
  type Endpoint,
  type Revision
} from '../../../data/serving/endpoints';
import { reasonText } from '../../../i18n/reasonText';
import { useRights } from '../rights';
import type { ChangeSearch, EndpointTabProps } from './EndpointDrawer';
import { RevisionDifferences } from './RevisionDifferences';
import { replacesData } from '../../../data/connection';

const COLORS: Record<string, TagColor | undefined> = {
  completed: 'green',
  'rolled-back': 'orange',
  failed: 'red'
};

/** The last revisions of an endpoint, and the differences between two of them. */
export function Revisions({ endpoint, search, onChange }: EndpointTabProps) {
  const { t } = useTranslation();
  const { data: revisions, error, refetch } = useQuery(revisionsQuery(endpoint.id));
  if (replacesData(error, revisions)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (revisions === undefined) {
    return <Skeleton active />;
  }
  return (
    <>
      <List
        size="small"
        dataSource={revisions}
        rowKey="id"
        renderItem={revision => (
          <RevisionItem endpoint={endpoint} revision={revision} onChange={onChange} />
        )}
      />
      {revisions.length > 1 ? (
        <RevisionDifferences revisions={revisions} search={search} onChange={onChange} />
      ) : (
        <Typography.Text type="secondary">{t('endpoints.one-revision')}</Typography.Text>
      )}
    </>
  );
}

interface RevisionItemProps {
  endpoint: Endpoint;
  revision: Revision;
  onChange: ChangeSearch;
}

function RevisionItem({ endpoint, revision, onChange }: RevisionItemProps) {
  const { t, i18n } = useTranslation();
  const { isOwner, isManager } = useRights(endpoint);
  const { number, outcome, reason, reason_coded: coded } = revision;
  const isLive = endpoint.status !== 'stopping';
  return (
    <List.Item>
      <Flex vertical gap={4} style={{ width: '100%' }}>
        <Flex wrap gap="small" align="center">
          <strong>{t('endpoints.revision-number', { number })}</strong>
          {number === endpoint.active_revision && (
            <Tag color="blue">{t('endpoints.is-serving')}</Tag>
          )}
          <Tag color={outcome === null ? 'cyan' : COLORS[outcome]}>
            {t(`endpoints.outcome-${outcome ?? 'running'}`)}
          </Tag>
          <span className="bai-time">{formatTime(revision.created_at, i18n.language)}</span>
          {isLive && isManager && number !== endpoint.target_revision && (
            <RollBack endpoint={endpoint} number={number} isSaved={outcome === 'saved'} />
          )}
          {isLive && isOwner && (
            <Button size="small" onClick={() => onChange({ form: 'revision', base: number })}>
              {t('endpoints.deploy-from')}
            </Button>
          )}
        </Flex>
        {revision.requests > 0 && (
          <Typography.Text type="secondary">
            {t('endpoints.rollout-counts', {
              count: revision.requests,
              errors: revision.errors,
              p99: revision.p99_ms?.toLocaleString(i18n.language) ?? '–'
            })}
          </Typography.Text>
        )}
        {reason && (
          <Typography.Text type="secondary">
            {reasonText(i18n, { message: reason, coded })}
          </Typography.Text>
        )}
      </Flex>
    </List.Item>
  );
}

interface RollBackProps {
  endpoint: Endpoint;
  number: number;
  /** The revision has had no rollout yet. */
  isSaved: boolean;
}

function RollBack({ endpoint, number, isSaved }: RollBackProps) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const rollBack = useRollBack(endpoint.id);
  const action = t(isSaved ? 'endpoints.apply' : 'endpoints.roll-back');
  const confirm = () =>
    void modal.confirm({
      title: t(isSaved ? 'endpoints.apply-title' : 'endpoints.roll-back-title', { number }),
      content: t('endpoints.roll-back-warning'),
      okText: action,
      onOk: async () => {
        try {
          await rollBack.mutateAsync(number);
        } catch (error) {
          void message.error((error as Error).message);
        }
      }
    });
  return (
    <Button size="small" onClick={confirm}>
      {action}
    </Button>
  );
}
