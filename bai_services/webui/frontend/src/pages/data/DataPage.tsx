import { useState } from 'react';
import { Button, Flex, Tabs, Typography } from 'antd';
import { useQueries } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { folderCountQuery } from '../../data/folders/folders';
import { useIsReadOnly } from '../../data/accounts/me';
import { useChosenProject } from '../../data/accounts/project';
import { CreateFolder } from './CreateFolder';
import { Explorer } from './Explorer';
import { FolderList } from './FolderList';
import { Invitations } from './Invitations';
import { filtersOfTab, TABS, type DataSearch, type Tab } from './search';
import { StorageUsage } from './StorageUsage';

const route = getRouteApi('/data');

/** The list of folders, or the files of the folder in the URL. */
export function DataPage() {
  const { folder } = route.useSearch();
  return folder ? <Explorer key={folder} id={folder} /> : <Folders />;
}

/** The user's folders, folders of projects, folders shared with the user, and the trash. */
function Folders() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [isCreating, setIsCreating] = useState(false);
  const mayWrite = useIsReadOnly() === false;
  const project = useChosenProject();
  const counts = useQueries({
    queries: TABS.map(tab =>
      folderCountQuery({
        ...(project && tab === 'project' ? { project: project.name } : {}),
        ...filtersOfTab(tab)
      })
    )
  });
  const change = (changes: DataSearch) =>
    void navigate({ search: old => ({ ...old, ...changes }) });
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        <Typography.Title level={3} style={{ margin: 0, flex: 1 }}>
          {t('pages.data')}
        </Typography.Title>
        {mayWrite && (
          <Button type="primary" onClick={() => setIsCreating(true)}>
            {t('data.create')}
          </Button>
        )}
      </Flex>
      <Invitations />
      <StorageUsage />
      <Tabs
        activeKey={search.tab ?? 'all'}
        onChange={tab => change({ tab: tab as Tab, page: 1 })}
        items={TABS.map((key, index) => ({
          key,
          label:
            counts[index]?.data === undefined
              ? t(`data.tab-${key}`)
              : t('data.tab-count', { tab: t(`data.tab-${key}`), count: counts[index].data })
        }))}
      />
      <FolderList
        key={search.tab ?? 'all'}
        search={search}
        onChange={change}
        {...(mayWrite ? { onCreate: () => setIsCreating(true) } : {})}
      />
      <CreateFolder isOpen={isCreating} onClose={() => setIsCreating(false)} />
    </>
  );
}
