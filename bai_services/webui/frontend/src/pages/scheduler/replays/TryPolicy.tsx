import { Alert, Button, Flex, Progress, Segmented, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import {
  replayQuery,
  useCancelReplay,
  useStartReplay,
  type Replay
} from '../../../data/scheduling/replays';
import { isReplayPeriod, REPLAY_PERIODS, type ReplayPeriod, type SchedulerSearch } from '../search';
import { MAX_POLICIES, policyOf, policyText, requestOf, type TriedRules } from './policies';
import { PolicyFields } from './PolicyFields';
import { RecentReplays } from './RecentReplays';
import { ReplayResult } from './ReplayResult';
import { replacesData } from '../../../data/connection';

const DEFAULT_PERIOD: ReplayPeriod = '7d';

interface TryPolicyProps {
  group: string;
  search: SchedulerSearch;
  change: (changes: SchedulerSearch) => void;
  /** Whether the user may start replays; monitors only read them. */
  mayStart: boolean;
}

/** Replay the history of a resource group under other policies, and compare the results. */
export function TryPolicy({ group, search, change, mayStart }: TryPolicyProps) {
  const { t } = useTranslation();
  return (
    <>
      <Typography.Paragraph type="secondary">{t('replays.about')}</Typography.Paragraph>
      {mayStart && <ReplayForm group={group} search={search} change={change} />}
      {search.replay && (
        <ShownReplay key={search.replay} group={group} id={search.replay} mayCancel={mayStart} />
      )}
      <RecentReplays group={group} shown={search.replay} onShow={replay => change({ replay })} />
    </>
  );
}

function ReplayForm({ group, search, change }: Omit<TryPolicyProps, 'mayStart'>) {
  const { t } = useTranslation();
  const start = useStartReplay(group);
  const period = search.since ?? DEFAULT_PERIOD;
  const policies = (search.policies ?? ['']).map(policyOf);
  const setPolicies = (changed: TriedRules[]) => change({ policies: changed.map(policyText) });
  const run = () => {
    start.mutate(
      { days: REPLAY_PERIODS[period], policies: policies.map(requestOf) },
      { onSuccess: replay => change({ replay: replay.id }) }
    );
  };
  return (
    <section aria-label={t('replays.form')}>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        <Typography.Text>{t('replays.period')}</Typography.Text>
        <Segmented
          value={period}
          options={Object.keys(REPLAY_PERIODS).map(value => ({
            value,
            label: t(`replays.period-${value}`)
          }))}
          onChange={value => isReplayPeriod(value) && change({ since: value })}
          aria-label={t('replays.period')}
        />
      </Flex>
      {policies.map((policy, index) => (
        <PolicyFields
          key={index}
          number={index + 1}
          policy={policy}
          onChange={changed => setPolicies(policies.with(index, changed))}
          {...(policies.length > 1 && {
            onRemove: () => setPolicies(policies.toSpliced(index, 1))
          })}
        />
      ))}
      <Flex wrap gap="small" style={{ marginBottom: 16 }}>
        <Button type="primary" onClick={run} loading={start.isPending}>
          {t('replays.start')}
        </Button>
        {policies.length < MAX_POLICIES && (
          <Button onClick={() => setPolicies([...policies, policyOf('')])}>
            {t('replays.add')}
          </Button>
        )}
      </Flex>
      {start.error && (
        <div style={{ marginBottom: 16 }}>
          <ErrorNotice error={start.error} />
        </div>
      )}
    </section>
  );
}

function ShownReplay(props: { group: string; id: string; mayCancel: boolean }) {
  const { data, error, refetch } = useQuery(replayQuery(props.group, props.id));
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data) {
    return <Skeleton active />;
  }
  if (data.comparison) {
    return <ReplayResult comparison={data.comparison} />;
  }
  return <ReplayProgress group={props.group} replay={data.replay} mayCancel={props.mayCancel} />;
}

function ReplayProgress(props: { group: string; replay: Replay; mayCancel: boolean }) {
  const { t } = useTranslation();
  const cancel = useCancelReplay(props.group);
  const { replay } = props;
  if (replay.status !== 'running') {
    return (
      <Alert
        type={replay.status === 'failed' ? 'error' : 'info'}
        showIcon
        title={replay.error || t(`replays.status-${replay.status}`)}
      />
    );
  }
  return (
    <section aria-label={t('replays.status-running')} aria-live="polite">
      <Flex gap="middle" align="center">
        <Progress
          percent={Math.floor(100 * replay.progress)}
          status="active"
          aria-label={t('replays.status-running')}
          style={{ flex: 1, maxWidth: 480 }}
        />
        {props.mayCancel && (
          <Button onClick={() => cancel.mutate(replay.id)} loading={cancel.isPending}>
            {t('replays.cancel')}
          </Button>
        )}
      </Flex>
      {cancel.error && <ErrorNotice error={cancel.error} />}
    </section>
  );
}
