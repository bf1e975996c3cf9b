import { useMemo, useState, type Key } from 'react';
import { App, Button, Empty, Flex, Progress, Tag, Tooltip, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { SavedFilters } from '../../components/list/SavedFilters';
import { csvUrl } from '../../data/csv';
import { FilterBar } from '../../components/list/FilterBar';
import { ListTable, type ListColumn } from '../../components/list/ListTable';
import { listQuery } from '../../components/list/listSearch';
import { usePrefetchNextPage } from '../../components/list/usePrefetchNextPage';
import { formatTime } from '../../components/time';
import { foldersQuery, useFolderStep, type Folder } from '../../data/folders/folders';
import { queries } from '../../data/queries';
import { useChosenProject } from '../../data/accounts/project';
import { FolderActions } from './FolderActions';
import { filtersOfTab, readDataSearch, type DataSearch, type Tab } from './search';
import { LostModels } from './LostModels';

const USAGE_MODES = ['general', 'model', 'data'] as const;
const DEFAULT_SORT = 'name';

interface FolderListProps {
  search: DataSearch;
  onChange: (changes: DataSearch) => void;
  /** Omitted for users who may only read. */
  onCreate?: () => void;
}

export function FolderList({ search, onChange, onCreate }: FolderListProps) {
  const { t, i18n } = useTranslation();
  const [selected, setSelected] = useState<string[]>([]);
  const tab = search.tab ?? 'all';
  const project = useChosenProject();
  const query = listQuery(search, DEFAULT_SORT);
  const filters = {
    ...(project && tab === 'project' ? { project: project.name } : {}),
    ...query.filters,
    ...filtersOfTab(tab)
  };
  const folders = useQuery(foldersQuery({ ...query, filters }));
  const columns = useMemo(() => folderColumns(t, i18n.language, tab), [t, i18n.language, tab]);
  const rowSelection = useMemo(
    () => ({
      selectedRowKeys: selected,
      onChange: (keys: Key[]) => setSelected(keys.map(String)),
      getCheckboxProps: (folder: Folder) => ({
        'aria-label': t('data.select', { name: folder.name })
      }),
      getTitleCheckboxProps: () => ({ 'aria-label': t('data.select-all') })
    }),
    [selected, t]
  );
  usePrefetchNextPage(folders, { ...query, filters }, next => queries.query(foldersQuery(next)));
  const chosen = (folders.data?.items ?? []).filter(folder => selected.includes(folder.id));
  return (
    <>
      {folders.error && (
        <ErrorNotice error={folders.error} onRetry={() => void folders.refetch()} />
      )}
      <ListTable<Folder>
        name="folders"
        rowKey="id"
        columns={columns}
        page={folders.data}
        isLoading={folders.isFetching && !folders.data}
        search={search}
        defaultSort={DEFAULT_SORT}
        onChange={changes => {
          setSelected([]);
          onChange(changes);
        }}
        csv={csvUrl('/vfolders', { ...query, filters })}
        onRefresh={() => void folders.refetch()}
        isRefreshing={folders.isFetching}
        tools={
          <SavedFilters
            list="folders"
            search={{ filters: search.filters ?? {}, sort: search.sort }}
            onApply={saved => onChange(readDataSearch({ ...saved, page: 1 }))}
          />
        }
        empty={<NoFolders search={search} {...(onCreate ? { onCreate } : {})} />}
        filters={<Filters search={search} onChange={onChange} />}
        toolbar={
          <BulkActions folders={chosen} isTrash={tab === 'trash'} onDone={() => setSelected([])} />
        }
        {...(onCreate ? { rowSelection } : {})}
      />
    </>
  );
}

function Filters({ search, onChange }: Pick<FolderListProps, 'search' | 'onChange'>) {
  const { t } = useTranslation();
  const yes = [{ value: 'true', label: t('data.yes') }];
  return (
    <FilterBar
      filters={search.filters ?? {}}
      onChange={filters => onChange({ filters, page: 1 })}
      properties={[
        { key: 'name__contains', title: t('data.name') },
        {
          key: 'usage_mode',
          title: t('data.usage-mode'),
          choices: USAGE_MODES.map(value => ({ value, label: t(`data.usage-${value}`) }))
        },
        { key: 'is_auto_mounted', title: t('data.auto-mount'), choices: yes },
        { key: 'is_mounted', title: t('data.mounted'), choices: yes },
        { key: 'host__contains', title: t('data.host') },
        { key: 'owner__contains', title: t('data.owner') },
        { key: 'project__contains', title: t('data.project-name') }
      ]}
    />
  );
}

function BulkActions(props: { folders: Folder[]; isTrash: boolean; onDone: () => void }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const step = useFolderStep();
  const action = props.isTrash ? 'restore' : 'trash';
  const managed = props.folders.filter(folder => folder.is_managed);
  const excluded = props.folders.filter(folder => !folder.is_managed);
  if (props.folders.length === 0) {
    return null;
  }
  const run = async () => {
    const failures = await step.mutateAsync({ folders: managed, step: action });
    failures.forEach(({ error }) => void message.error(error.message));
    props.onDone();
  };
  const confirm = () =>
    modal.confirm({
      title: t(`data.${action}-many`, { count: managed.length }),
      content: (
        <>
          <ul>
            {managed.map(({ id, name }) => (
              <li key={id}>{name}</li>
            ))}
          </ul>
          {excluded.length > 0 && (
            <p>{t('data.excluded', { names: excluded.map(({ name }) => name).join(', ') })}</p>
          )}
          <LostModels folders={managed} />
        </>
      ),
      okText: t(`data.${action}`),
      onOk: run
    });
  return (
    <Button
      disabled={managed.length === 0}
      loading={step.isPending}
      onClick={() => (props.isTrash ? void run() : void confirm())}
    >
      {t('data.selected', { action: t(`data.${action}`), count: managed.length })}
    </Button>
  );
}

function NoFolders({ search, onCreate }: { search: DataSearch; onCreate?: () => void }) {
  const { t } = useTranslation();
  const tab = search.tab ?? 'all';
  const isFiltered = search.filters !== undefined && Object.keys(search.filters).length > 0;
  const canCreate = !isFiltered && (tab === 'all' || tab === 'own');
  return (
    <Empty
      image={Empty.PRESENTED_IMAGE_SIMPLE}
      description={t(isFiltered ? 'data.none-found' : canCreate ? 'data.none' : `data.no-${tab}`)}
    >
      {canCreate && onCreate && <Button onClick={onCreate}>{t('data.create')}</Button>}
    </Empty>
  );
}

function folderColumns(t: TFunction, language: string, tab: Tab): ListColumn<Folder>[] {
  const time = (text: string | null) => text && formatTime(text, language);
  return [
    {
      key: 'name',
      title: t('data.name'),
      sorter: true,
      render: (_, folder) => (
        <Link from="/data" to="." search={old => ({ ...old, folder: folder.id })}>
          {folder.name}
        </Link>
      )
    },
    {
      key: 'status',
      title: t('data.status'),
      render: (_, folder) => <FolderStatus folder={folder} />
    },
    {
      key: 'owner',
      title: t('data.owner'),
      sorter: true,
      ...(tab === 'trash' ? { responsive: ['sm' as const] } : {}),
      render: (_, folder) => <FolderOwner folder={folder} />
    },
    { key: 'host', title: t('data.host'), sorter: true, responsive: ['md'], dataIndex: 'host' },
    {
      key: 'permission',
      title: t('data.permission'),
      responsive: ['sm'],
      render: (_, folder) => folder.permission && t(`permissions.${folder.permission}`)
    },
    {
      key: 'used_bytes',
      title: t('data.used'),
      sorter: true,
      responsive: ['md'],
      render: (_, { used_bytes: used }) =>
        used === null ? t('data.not-counted') : formatBytes(used, language)
    },
    ...(tab === 'trash'
      ? [
          {
            key: 'status_changed_at',
            title: t('data.trashed-at'),
            responsive: ['md' as const],
            render: (_: unknown, folder: Folder) => time(folder.status_changed_at)
          },
          {
            key: 'purge_at',
            title: t('data.purge-at'),
            render: (_: unknown, folder: Folder) => purgeTime(folder, t, language)
          }
        ]
      : []),
    {
      key: 'usage_mode',
      title: t('data.usage-mode'),
      isOptional: true,
      render: (_, folder) => t(`data.usage-${folder.usage_mode}`)
    },
    {
      key: 'created_at',
      title: t('data.created-at'),
      sorter: true,
      isOptional: true,
      render: (_, folder) => time(folder.created_at)
    },
    {
      key: 'last_used_at',
      title: t('data.last-used'),
      sorter: true,
      isOptional: true,
      render: (_, folder) => time(folder.last_used_at)
    },
    { key: 'id', title: t('data.id'), isOptional: true, dataIndex: 'id' },
    {
      key: 'actions',
      title: '',
      align: 'right',
      render: (_, folder) => <FolderActions folder={folder} />
    }
  ];
}

/** When a folder in the trash is permanently deleted; empty for a folder that is not there. */
export function purgeTime(folder: Folder, t: TFunction, language: string): string {
  if (folder.purge_at !== null) {
    return formatTime(folder.purge_at, language);
  }
  return folder.status === 'delete-pending' ? t('data.purge-never') : '';
}

export function FolderOwner({ folder }: { folder: Folder }) {
  const { t } = useTranslation();
  if (folder.project) {
    return <Tag color="geekblue">{t('data.project', { name: folder.project })}</Tag>;
  }
  const name = personal(folder.owner ?? '');
  return folder.is_owner ? t('data.you', { name }) : name;
}

const COLORS: Record<string, string> = { ready: 'default', error: 'red', 'delete-error': 'red' };

/** The status, the progress of a running task, and tags for a mounted or auto-mounted folder. */
export function FolderStatus({ folder }: { folder: Folder }) {
  const { t } = useTranslation();
  const { task } = folder;
  return (
    <Flex vertical gap={4} align="start">
      <Flex wrap gap={4}>
        <Tooltip title={folder.status_info}>
          <Tag color={COLORS[folder.status] ?? 'blue'}>{t(`data.status-${folder.status}`)}</Tag>
        </Tooltip>
        {folder.is_mounted && <Tag color="blue">{t('data.mounted')}</Tag>}
        {folder.is_auto_mounted && <Tag>{t('data.auto-mount')}</Tag>}
      </Flex>
      {folder.status_info && COLORS[folder.status] === 'red' && (
        <Typography.Text type="secondary">{folder.status_info}</Typography.Text>
      )}
      {task && task.total_bytes > 0 && (
        <Progress
          size="small"
          style={{ minWidth: 120 }}
          percent={Math.floor((100 * task.bytes) / task.total_bytes)}
          aria-label={t(`data.status-${folder.status}`)}
        />
      )}
    </Flex>
  );
}
