import { useState } from 'react';
import { Button, Descriptions, Drawer, Empty, Flex, Input, Table, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import { foldersQuery, type Folder } from '../../data/folders';
import { CreateFolder } from './CreateFolder';
import { Invitations } from './Invitations';
import { readDataSearch } from './search';

const route = getRouteApi('/data');
const PAGE_SIZE = 20;

/** The user's folders, folders of projects, and folders shared with the user. */
export function DataPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [isCreating, setIsCreating] = useState(false);
  const page = search.page ?? 1;
  const folders = useQuery(
    foldersQuery({
      limit: PAGE_SIZE,
      offset: (page - 1) * PAGE_SIZE,
      sort: 'name',
      filters: search.name ? { name__contains: search.name } : {}
    })
  );
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        <Typography.Title level={3} style={{ margin: 0, flex: 1 }}>
          {t('pages.data')}
        </Typography.Title>
        <Button type="primary" onClick={() => setIsCreating(true)}>
          {t('data.create')}
        </Button>
      </Flex>
      <Invitations />
      <Input.Search
        allowClear
        key={search.name ?? ''}
        defaultValue={search.name ?? ''}
        placeholder={t('data.find')}
        aria-label={t('data.find')}
        onSearch={name => void navigate({ search: name ? { name } : {} })}
        style={{ maxWidth: 280, marginBottom: 12 }}
      />
      {folders.error && (
        <ErrorNotice error={folders.error} onRetry={() => void folders.refetch()} />
      )}
      <Table<Folder>
        rowKey="id"
        dataSource={folders.data?.items ?? []}
        loading={folders.isFetching && !folders.data}
        className="bai-table"
        locale={{
          emptyText: (
            <Empty
              image={Empty.PRESENTED_IMAGE_SIMPLE}
              description={t(search.name ? 'data.none-found' : 'data.none')}
            />
          )
        }}
        columns={[
          {
            key: 'name',
            title: t('data.name'),
            render: (_, folder) => (
              <Link from="/data" to="." search={old => ({ ...old, folder: folder.id })}>
                {folder.name}
              </Link>
            )
          },
          {
            key: 'owner',
            title: t('data.owner'),
            render: (_, folder) =>
              folder.project ? (
                <Tag color="geekblue">{t('data.project', { name: folder.project })}</Tag>
              ) : (
                folder.owner
              )
          },
          { key: 'host', title: t('data.host'), dataIndex: 'host', responsive: ['md'] },
          {
            key: 'permission',
            title: t('data.permission'),
            responsive: ['sm'],
            render: (_, folder) => t(`permissions.${folder.permission}`)
          }
        ]}
        pagination={{
          current: page,
          pageSize: PAGE_SIZE,
          total: folders.data?.total ?? 0,
          hideOnSinglePage: true,
          onChange: chosen => void navigate({ search: old => ({ ...old, page: chosen }) })
        }}
      />
      <CreateFolder isOpen={isCreating} onClose={() => setIsCreating(false)} />
      <FolderDrawer
        folder={folders.data?.items.find(folder => folder.id === search.folder)}
        onClose={() =>
          void navigate({ search: ({ name, page }) => readDataSearch({ name, page }) })
        }
      />
    </>
  );
}

function FolderDrawer({ folder, onClose }: { folder: Folder | undefined; onClose: () => void }) {
  const { t, i18n } = useTranslation();
  return (
    <Drawer open={folder !== undefined} onClose={onClose} title={folder?.name} destroyOnHidden>
      {folder && (
        <Descriptions
          size="small"
          column={1}
          items={[
            { key: 'host', label: t('data.host'), children: folder.host },
            {
              key: 'permission',
              label: t('data.permission'),
              children: t(`permissions.${folder.permission}`)
            },
            {
              key: 'created',
              label: t('sessions.created'),
              children: formatTime(folder.created_at, i18n.language)
            }
          ]}
        />
      )}
    </Drawer>
  );
}
