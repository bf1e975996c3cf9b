import { useState } from 'react';
import { ArrowLeftOutlined, InfoCircleOutlined } from '@ant-design/icons';
import { App, Breadcrumb, Button, Drawer, Flex, Grid, Input, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { joined } from '../../data/folders/files';
import { folderQuery, hostsQuery, isWritable, type Folder } from '../../data/folders/folders';
import { addUploads } from '../../data/folders/uploads';
import { droppedFiles } from './dropped';
import { FileList } from './FileList';
import { FileToolbar } from './FileToolbar';
import { FileDrawer } from './preview/FileDrawer';
import { FolderActions } from './FolderActions';
import { FolderFacts } from './FolderFacts';
import { readDataSearch } from './search';
import { Uploads } from './Uploads';
import { UserText } from '../../components/UserText';
import { replacesData } from '../../data/connection';

const route = getRouteApi('/data');
const FACTS_WIDTH = 480;

/** The files of one folder. */
export function Explorer({ id }: { id: string }) {
  const { t } = useTranslation();
  const folder = useQuery(folderQuery(id));
  if (replacesData(folder.error, folder.data)) {
    return (
      <>
        <Typography.Title level={3}>{t('data.folder')}</Typography.Title>
        <ErrorNotice error={folder.error} onRetry={() => void folder.refetch()} />
        <Link to="/data">{t('data.back')}</Link>
      </>
    );
  }
  return folder.data ? (
    <OpenFolder folder={folder.data} />
  ) : (
    <>
      <Typography.Title level={3}>{t('data.folder')}</Typography.Title>
      <Skeleton active />
    </>
  );
}

function OpenFolder({ folder }: { folder: Folder }) {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const path = search.path ?? '';
  const [selected, setSelected] = useState<ReadonlyMap<string, string>>(new Map());
  const directory = { id: folder.id, path };
  const canWrite = isWritable(folder) && folder.status === 'ready';
  const uploadRefusal = useUploadRefusal(folder, canWrite);
  const { message } = App.useApp();
  const go = (changes: { path?: string; find?: string; sort?: string }) => {
    setSelected(new Map());
    void navigate({ search: old => ({ ...old, find: '', ...changes }) });
  };
  const showFile = (file: string | undefined) =>
    void navigate({ search: old => readDataSearch({ ...old, file }) });
  return (
    <div
      onDragOver={event => event.preventDefault()}
      onDrop={event => {
        event.preventDefault();
        if (uploadRefusal) {
          void message.error(uploadRefusal);
        } else {
          void droppedFiles(event.dataTransfer).then(({ files, unreadable }) => {
            addUploads(directory, files);
            if (unreadable.length > 0) {
              void message.error(t('data.drop-unreadable', { paths: unreadable.join(', ') }));
            }
          });
        }
      }}
    >
      <ExplorerHeader folder={folder} />
      <Path folder={folder} path={path} onOpen={chosen => go({ path: chosen })} />
      <FileToolbar
        directory={directory}
        canWrite={canWrite}
        uploadRefusal={uploadRefusal}
        selected={selected}
        onDone={() => setSelected(new Map())}
        onCreated={showFile}
      >
        <FindFile key={search.find ?? ''} text={search.find ?? ''} onFind={find => go({ find })} />
      </FileToolbar>
      <FileList
        directory={directory}
        canWrite={canWrite}
        find={search.find ?? ''}
        sort={search.filesort ?? 'name'}
        onSort={filesort => void navigate({ search: old => ({ ...old, filesort }) })}
        selected={selected}
        onSelect={setSelected}
        onOpen={name => go({ path: joined(path, name) })}
        onShow={name => showFile(joined(path, name))}
      />
      <Uploads id={folder.id} />
      <FileDrawer
        id={folder.id}
        path={search.file}
        canWrite={canWrite}
        onClose={() => showFile(undefined)}
      />
    </div>
  );
}

/** Why the user may not upload files to a folder; empty if they may. */
function useUploadRefusal(folder: Folder, canWrite: boolean): string {
  const { t } = useTranslation();
  const hosts = useQuery(hostsQuery);
  const host = hosts.data?.find(({ name }) => name === folder.host);
  if (!canWrite) {
    return t('data.upload-read-only');
  }
  return host && !host.permissions.includes('upload-file')
    ? t('data.upload-no-permission', { host: folder.host })
    : '';
}

function ExplorerHeader({ folder }: { folder: Folder }) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const [showsFacts, setShowsFacts] = useState(false);
  return (
    <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
      <Link
        from="/data"
        to="."
        aria-label={t('data.back')}
        search={old => readDataSearch({ ...old, folder: '', path: '', find: '', file: '' })}
      >
        <ArrowLeftOutlined />
      </Link>
      <Typography.Title level={3} style={{ margin: 0, flex: 1 }} ellipsis title={folder.name}>
        {folder.name}
      </Typography.Title>
      <Button icon={<InfoCircleOutlined />} onClick={() => setShowsFacts(true)}>
        {t('data.details')}
      </Button>
      <FolderActions folder={folder} />
      <Drawer
        open={showsFacts}
        onClose={() => setShowsFacts(false)}
        size={isWide ? FACTS_WIDTH : '100%'}
        title={folder.name}
      >
        <FolderFacts folder={folder} />
      </Drawer>
    </Flex>
  );
}

function Path(props: { folder: Folder; path: string; onOpen: (path: string) => void }) {
  const { t } = useTranslation();
  const names = props.path.split('/').filter(Boolean);
  const items = [props.folder.name, ...names].map((name, index) => ({
    key: index,
    title:
      index === names.length ? (
        <UserText text={name} />
      ) : (
        <Button
          type="link"
          size="small"
          onClick={() => props.onOpen(names.slice(0, index).join('/'))}
        >
          <UserText text={name} />
        </Button>
      )
  }));
  return (
    <nav aria-label={t('data.path')} style={{ marginBottom: 12 }}>
      <Breadcrumb items={items} />
    </nav>
  );
}

function FindFile({ text, onFind }: { text: string; onFind: (text: string) => void }) {
  const { t } = useTranslation();
  return (
    <Input.Search
      allowClear
      defaultValue={text}
      placeholder={t('data.find-file')}
      aria-label={t('data.find-file')}
      onSearch={onFind}
      style={{ width: 220 }}
    />
  );
}
