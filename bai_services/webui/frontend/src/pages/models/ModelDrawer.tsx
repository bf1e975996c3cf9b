import { Alert, App, Button, Descriptions, Drawer, Flex, Grid, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { SlotTags } from '../../components/SlotTags';
import { Tag } from '../../components/Tag';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import { useIsReadOnly } from '../../data/accounts/me';
import { folderQuery } from '../../data/folders/folders';
import {
  modelQuery,
  readmeQuery,
  refreshModels,
  useRefreshModel,
  versionsQuery,
  type ModelCard
} from '../../data/serving/models';
import { useTrashFolder } from '../data/useTrashFolder';
import { MarkdownPreview } from '../data/preview/markdown/MarkdownPreview';
import { CloneModel } from './CloneModel';
import { DeployModel } from './DeployModel';
import type { ModelsSearch } from './search';

const WIDTH = 760;

interface ModelDrawerProps {
  search: ModelsSearch;
  onChange: (changes: Record<string, unknown>) => void;
}

/** Drawer with one model: its facts, versions and README, and its actions. */
export function ModelDrawer({ search, onChange }: ModelDrawerProps) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const { item } = search;
  const { data, error, refetch } = useQuery({
    ...modelQuery(item ?? ''),
    enabled: item !== undefined
  });
  const model = data && [data.id, data.folder].includes(item ?? '') ? data : undefined;
  const closeForm = () => onChange({ form: undefined });
  return (
    <Drawer
      open={item !== undefined}
      onClose={() => onChange({ item: undefined, form: undefined })}
      size={isWide ? WIDTH : '100%'}
      destroyOnHidden
      title={model ? <UserText text={model.title} /> : t('models.model')}
    >
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!model && !error && <Skeleton active />}
      {model && !error && (
        <>
          <ModelActions model={model} onChange={onChange} />
          <Problem model={model} />
          <Facts model={model} />
          <Versions model={model} onChange={onChange} />
          <Readme model={model} />
          {search.form === 'deploy' && <DeployModel model={model} onClose={closeForm} />}
          {search.form === 'clone' && <CloneModel model={model} onClose={closeForm} />}
        </>
      )}
    </Drawer>
  );
}

interface ModelProps {
  model: ModelCard;
}

interface ChangeProps extends ModelProps {
  onChange: (changes: Record<string, unknown>) => void;
}

function ModelActions({ model, onChange }: ChangeProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const isReadOnly = useIsReadOnly();
  const refresh = useRefreshModel(model.id);
  const { data: folder } = useQuery(folderQuery(model.id));
  const trash = useTrashFolder();
  if (isReadOnly !== false) {
    return null;
  }
  return (
    <Flex wrap gap="small" style={{ marginBottom: 16 }}>
      <Button
        type="primary"
        disabled={model.problem !== ''}
        onClick={() => onChange({ form: 'deploy' })}
      >
        {t('models.deploy')}
      </Button>
      {model.cloneable && (
        <Button onClick={() => onChange({ form: 'clone' })}>{t('models.clone')}</Button>
      )}
      <Button
        loading={refresh.isPending}
        onClick={() =>
          refresh.mutate(undefined, { onError: error => void message.error(error.message) })
        }
      >
        {t('models.refresh')}
      </Button>
      {folder?.is_managed && (
        <Button
          danger
          onClick={() =>
            trash(folder, () => {
              onChange({ item: undefined });
              void refreshModels();
            })
          }
        >
          {t('models.delete')}
        </Button>
      )}
    </Flex>
  );
}

function Problem({ model }: ModelProps) {
  const { t } = useTranslation();
  return (
    <>
      {model.problem && (
        <Alert
          type="error"
          showIcon
          style={{ marginBottom: 12 }}
          title={t('models.problem')}
          description={<UserText text={model.problem} />}
        />
      )}
      {model.is_fitting === false && (
        <Alert
          type="warning"
          showIcon
          style={{ marginBottom: 12 }}
          title={t('models.large-help')}
        />
      )}
    </>
  );
}

function Facts({ model }: ModelProps) {
  const { t, i18n } = useTranslation();
  const facts = {
    version: model.version && <UserText text={model.version} />,
    task: model.task && <UserText text={model.task} />,
    author: model.author && <UserText text={model.author} />,
    architecture: model.architecture && <UserText text={model.architecture} />,
    frameworks: model.frameworks.length > 0 && <Tags texts={model.frameworks} />,
    license: model.license && <UserText text={model.license} />,
    category: model.category && <UserText text={model.category} />,
    labels: model.labels.length > 0 && <Tags texts={model.labels} />,
    'min-resources': Object.keys(model.min_resources).length > 0 && (
      <SlotTags slots={model.min_resources} />
    ),
    size: model.size_bytes !== null && formatBytes(model.size_bytes, i18n.language),
    created: model.created && <UserText text={model.created} />,
    'last-modified': model.last_modified && <UserText text={model.last_modified} />,
    'created-at': formatTime(model.created_at, i18n.language),
    'refreshed-at': formatTime(model.refreshed_at, i18n.language),
    project: <UserText text={model.project} />,
    folder: (
      <Link to="/data" search={{ folder: model.id }}>
        <UserText text={model.folder} />
      </Link>
    )
  };
  return (
    <>
      {model.description && (
        <Typography.Paragraph style={{ whiteSpace: 'pre-line' }}>
          <UserText text={model.description} />
        </Typography.Paragraph>
      )}
      <Descriptions
        size="small"
        column={{ xs: 1, md: 2 }}
        items={Object.entries(facts).flatMap(([key, children]) =>
          children ? [{ key, label: t(`models.${key}`), children }] : []
        )}
      />
    </>
  );
}

const Tags = ({ texts }: { texts: readonly string[] }) => (
  <span className="bai-tags">
    {texts.map(text => (
      <Tag key={text}>
        <UserText text={text} />
      </Tag>
    ))}
  </span>
);

/** The other models of the store with the same name. */
function Versions({ model, onChange }: ChangeProps) {
  const { t } = useTranslation();
  const { data } = useQuery(versionsQuery(model.id));
  const others = data?.filter(({ id }) => id !== model.id) ?? [];
  if (others.length === 0) {
    return null;
  }
  return (
    <Flex wrap gap="small" align="center" style={{ marginTop: 12 }}>
      {t('models.other-versions')}
      {others.map(({ id, version, folder }) => (
        <Button key={id} size="small" onClick={() => onChange({ item: id })}>
          <UserText text={version || folder} />
        </Button>
      ))}
    </Flex>
  );
}

function Readme({ model }: ModelProps) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(readmeQuery(model.id));
  return (
    <section style={{ marginTop: 16 }} aria-label={t('models.readme')}>
      <Typography.Title level={5}>{t('models.readme')}</Typography.Title>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {data === undefined && !error && <Skeleton active />}
      {data === '' && <Typography.Text type="secondary">{t('models.no-readme')}</Typography.Text>}
      {data && <MarkdownPreview text={data} />}
    </section>
  );
}
