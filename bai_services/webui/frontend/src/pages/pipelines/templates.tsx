import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { UserText } from '../../components/UserText';
import type { Item } from '../../data/entities';
import type { PipelineTemplate } from '../../data/pipelines/pipelines';

const templateOf = (item: Item) => item as unknown as PipelineTemplate;

/** Definitions from which users create pipelines. */
export const TEMPLATES: Entity = {
  name: 'pipeline-templates',
  path: '/pipeline-templates',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'actions', render: item => <Use template={templateOf(item)} /> },
    {
      key: 'description',
      render: item => <UserText text={templateOf(item).description} />
    },
    { key: 'tasks', isSortable: true },
    { key: 'owner', isSortable: true, render: item => <Owner template={templateOf(item)} /> },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }, { key: 'is_builtin', isFlag: true }],
  fields: [],
  writers: ['user', 'admin', 'superadmin'],
  isWritable: item => templateOf(item).can_delete,
  canCreate: false,
  canDelete: true
};

function Use({ template }: { template: PipelineTemplate }) {
  const { t } = useTranslation();
  return (
    <Link to="/pipelines" search={{ form: 'new', template: template.id }}>
      {t('pipeline-templates.use')}
    </Link>
  );
}

function Owner({ template }: { template: PipelineTemplate }) {
  const { t } = useTranslation();
  if (template.is_builtin) {
    return t('pipeline-templates.built-in');
  }
  return template.owner === null ? (
    t('pipelines.owner-project', { name: template.project ?? '' })
  ) : (
    <UserText text={template.owner} />
  );
}
