import { lazy } from 'react';
import { App, Button, Tabs } from 'antd';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { EntityList } from '../../components/entities/EntityList';
import { LazyDialog } from '../../components/LazyDialog';
import { PageTitle } from '../../components/PageTitle';
import { useIsReadOnly } from '../../data/accounts/me';
import { loadScript } from '../../data/scripts';
import { Comparison } from './Comparison';
import { PIPELINES, RUNS } from './entities';
import { SCHEDULES } from './schedules';
import { readPipelinesSearch } from './search';
import { StartRun } from './StartRun';
import { TEMPLATES } from './templates';
import { RenewSecret, TRIGGERS, TriggerSecret } from './triggers';

const route = getRouteApi('/pipelines');
const PipelineEditor = lazy(() =>
  loadScript(() => import('./PipelineEditor')).then(module => ({ default: module.PipelineEditor }))
);
const RunDrawer = lazy(() =>
  loadScript(() => import('./RunDrawer')).then(module => ({ default: module.RunDrawer }))
);

/** Pipelines of the user, their runs, schedules and triggers. */
export function PipelinesPage() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const isReadOnly = useIsReadOnly();
  const change = (changes: Record<string, unknown>) =>
    void navigate({ search: old => readPipelinesSearch({ ...old, ...changes }) });
  // Discard the filters and the order, which are different for the two lists.
  const changeTab = (tab: string) => void navigate({ search: readPipelinesSearch({ tab }) });
  const close = () => change({ form: undefined, item: undefined, template: undefined });
  const showRun = (run: string) =>
    void navigate({ search: readPipelinesSearch({ tab: 'runs', run }) });
  const newButton = isReadOnly === false && (
    <Button type="primary" onClick={() => change({ form: 'new', item: undefined })}>
      {t('pipelines.create')}
    </Button>
  );
  const list = (entity: typeof RUNS) => (
    <EntityList
      entity={entity}
      search={search}
      onSearch={changes => change({ ...changes })}
      tools={entity === PIPELINES && newButton}
    />
  );
  const triggers = (
    <EntityList
      entity={TRIGGERS}
      search={search}
      onSearch={changes => change({ ...changes })}
      actions={item => item['kind'] === 'webhook' && <RenewSecret trigger={item} />}
      onCreated={item => {
        if (typeof item['secret'] === 'string') {
          modal.success({
            title: t('pipeline-triggers.created'),
            content: <TriggerSecret secret={item['secret']} />
          });
        }
      }}
    />
  );
  const isEditing = search.form === 'new' || (search.form === 'edit' && Boolean(search.item));
  return (
    <>
      <PageTitle>{t('pages.pipelines')}</PageTitle>
      <Tabs
        activeKey={search.tab ?? 'pipelines'}
        onChange={changeTab}
        destroyOnHidden
        items={[
          { key: 'pipelines', label: t('pages.pipelines'), children: list(PIPELINES) },
          { key: 'runs', label: t('pipeline-runs.title'), children: list(RUNS) },
          {
            key: 'comparison',
            label: t('pipeline-runs.comparison'),
            children: <Comparison pipelineId={search.of} onSelect={of => change({ of })} />
          },
          { key: 'templates', label: t('pipeline-templates.title'), children: list(TEMPLATES) },
          { key: 'schedules', label: t('pipeline-schedules.title'), children: list(SCHEDULES) },
          { key: 'triggers', label: t('pipeline-triggers.title'), children: triggers }
        ]}
      />
      <LazyDialog isOpen={isEditing}>
        <PipelineEditor
          isOpen={isEditing}
          pipelineId={search.form === 'edit' ? search.item : undefined}
          templateId={search.form === 'new' ? search.template : undefined}
          isReadOnly={isReadOnly !== false}
          onClose={close}
        />
      </LazyDialog>
      {search.form === 'start' && search.item && isReadOnly === false && (
        <StartRun pipelineId={search.item} onClose={close} onDone={showRun} />
      )}
      <LazyDialog isOpen={search.run !== undefined}>
        <RunDrawer runId={search.run} onClose={() => change({ run: undefined })} />
      </LazyDialog>
    </>
  );
}
