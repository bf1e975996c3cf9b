import { Alert, App, Button, Flex, Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { UserText } from '../../components/UserText';
import type { Item } from '../../data/entities';
import { Parameters } from './schedules';
import { useRenewTriggerSecret, type PipelineTrigger } from '../../data/pipelines/pipelines';

const KINDS = ['webhook', 'file', 'pipeline'];

const triggerOf = (item: Item) => item as unknown as PipelineTrigger;

const isFile = (shown: Item) => shown['kind'] === 'file';
const isPipeline = (shown: Item) => shown['kind'] === 'pipeline';

/** Signed requests of other services, files and other pipelines that run pipelines. */
export const TRIGGERS: Entity = {
  name: 'pipeline-triggers',
  path: '/pipeline-triggers',
  id: 'id',
  defaultSort: 'pipeline',
  columns: [
    { key: 'name', isSortable: true },
    {
      key: 'pipeline',
      isSortable: true,
      render: item => <UserText text={triggerOf(item).pipeline} />
    },
    { key: 'kind', isSortable: true, render: item => <Kind trigger={triggerOf(item)} /> },
    { key: 'is_enabled', isSortable: true },
    { key: 'last_call_at', isSortable: true },
    { key: 'last_run_id', render: item => <LastRun trigger={triggerOf(item)} /> },
    { key: 'id', isOptional: true },
    {
      key: 'parameters',
      isOptional: true,
      render: item => <Parameters parameters={triggerOf(item).parameters} />
    },
    { key: 'owner', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'pipeline__contains' },
    { key: 'kind', choices: KINDS.map(value => ({ value, label: value })) },
    { key: 'is_enabled', isFlag: true },
    { key: 'owner__contains' }
  ],
  fields: [
    {
      key: 'pipeline',
      kind: 'reference',
      of: { path: '/pipelines', name: 'name' },
      isRequired: true,
      only: 'create'
    },
    { key: 'name', kind: 'text', isRequired: true, only: 'create' },
    { key: 'kind', kind: 'choice', choices: KINDS, default: 'webhook', only: 'create' },
    {
      key: 'folder',
      kind: 'reference',
      of: { path: '/vfolders', name: 'name', id: 'id', filters: { status: 'ready' } },
      isRequired: true,
      only: 'create',
      isShown: isFile
    },
    { key: 'pattern', kind: 'text', isRequired: true, only: 'create', isShown: isFile },
    {
      key: 'source',
      kind: 'reference',
      of: { path: '/pipelines', name: 'name', id: 'id' },
      isRequired: true,
      only: 'create',
      isShown: isPipeline
    },
    {
      key: 'result',
      kind: 'choice',
      choices: ['success', 'failure', 'any'],
      default: 'success',
      only: 'create',
      isShown: isPipeline
    },
    {
      key: 'parameters',
      kind: 'json',
      only: 'create',
      isShown: shown => isFile(shown) || isPipeline(shown)
    },
    { key: 'is_enabled', kind: 'switch', only: 'change' }
  ],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: true,
  canDelete: true
};

/** The kind of a trigger, and the files or the pipeline that it watches. */
function Kind({ trigger }: { trigger: PipelineTrigger }) {
  const { t } = useTranslation();
  const { folder, pattern, source, result } = trigger;
  const kind = t(`pipeline-triggers.kind-${trigger.kind}`, trigger.kind);
  const files = trigger.kind === 'file' ? `${folder ?? '–'}/${pattern}` : '';
  return (
    <>
      {kind}
      {files && (
        <>
          : <UserText text={files} />
        </>
      )}
      {source && (
        <>
          : <UserText text={source} /> ({t(`pipeline-triggers.result-${result ?? ''}`, '')})
        </>
      )}
    </>
  );
}

/** The last run, and the reason if the last event created no run. */
function LastRun({ trigger }: { trigger: PipelineTrigger }) {
  const { t } = useTranslation();
  const { last_run_id: run, last_message: message } = trigger;
  if (!run && !message) {
    return '–';
  }
  return (
    <Flex gap="small" wrap>
      {run && (
        <Link to="/pipelines" search={{ tab: 'runs', run }}>
          {t('pipeline-runs.run')}
        </Link>
      )}
      {message && <UserText text={message} />}
    </Flex>
  );
}

/** Button of a webhook: replace the secret. */
export function RenewSecret({ trigger }: { trigger: Item }) {
  const { t } = useTranslation();
  const { message, modal } = App.useApp();
  const renew = useRenewTriggerSecret();
  const replace = () =>
    renew.mutate(String(trigger['id']), {
      onError: error => void message.error(error.message),
      onSuccess: ({ secret }) =>
        void modal.success({
          title: t('pipeline-triggers.secret-replaced'),
          content: <TriggerSecret secret={secret} />
        })
    });
  return (
    <Button
      loading={renew.isPending}
      onClick={() =>
        void modal.confirm({
          title: t('pipeline-triggers.replace-secret'),
          content: t('pipeline-triggers.replace-warning'),
          okText: t('pipeline-triggers.replace-secret'),
          onOk: replace
        })
      }
    >
      {t('pipeline-triggers.replace-secret')}
    </Button>
  );
}

/** The secret with which the other service signs its calls; the server returns it only once. */
export function TriggerSecret({ secret }: { secret: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Alert type="warning" showIcon title={t('pipeline-triggers.secret-once')} />
      <Typography.Paragraph copyable style={{ marginTop: 12, overflowWrap: 'anywhere' }}>
        {secret}
      </Typography.Paragraph>
    </>
  );
}
