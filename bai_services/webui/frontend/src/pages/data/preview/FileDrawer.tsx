import { useState } from 'react';
import { Alert, App, Button, Drawer, Flex, Skeleton, Space, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../../components/bytes';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { contentQuery, forgetContent, type FileContent } from '../../../data/folders/fileContent';
import { downloadUrl, useFileVersion } from '../../../data/folders/files';
import { FileView } from './FileView';
import { kindOf, MAX_BYTES } from './kinds';
import { UserText } from '../../../components/UserText';

const WIDTH = 960;

interface FileDrawerProps {
  /** Id of the folder. */
  id: string;
  /** Path of the file in the folder; undefined: no file is open. */
  path: string | undefined;
  canWrite: boolean;
  onClose: () => void;
}

/** Drawer with a file: a preview, or an editor of its text. */
export function FileDrawer({ id, path, canWrite, onClose }: FileDrawerProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  return (
    <Drawer
      open={path !== undefined}
      onClose={onClose}
      size={Math.min(WIDTH, window.innerWidth)}
      destroyOnHidden
      title={path && <FileTitle id={id} path={path} />}
      extra={
        path !== undefined && (
          <Button href={downloadUrl(id, [{ path, type: 'file' }])} download>
            {t('data.download')}
          </Button>
        )
      }
    >
      {path !== undefined && (
        <OpenFile
          key={path}
          id={id}
          path={path}
          canWrite={canWrite}
          onSaved={() => void message.success(t('preview.saved'))}
        />
      )}
    </Drawer>
  );
}

/** The name of the file and, as soon as it is known, its size. */
function FileTitle({ id, path }: { id: string; path: string }) {
  const { i18n } = useTranslation();
  const { data } = useQuery(contentQuery(id, path, MAX_BYTES[kindOf(path)]));
  return (
    <Flex wrap gap="small" align="baseline">
      <UserText text={path.slice(path.lastIndexOf('/') + 1)} />
      {data && (
        <Typography.Text type="secondary">{formatBytes(data.size, i18n.language)}</Typography.Text>
      )}
    </Flex>
  );
}

interface OpenFileProps {
  id: string;
  path: string;
  canWrite: boolean;
  onSaved: () => void;
}

function OpenFile(props: OpenFileProps) {
  const kind = kindOf(props.path);
  const { data, error, refetch } = useQuery(contentQuery(props.id, props.path, MAX_BYTES[kind]));
  return (
    <Flex vertical gap="small">
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton active />}
      {data && <LoadedFile {...props} content={data} />}
    </Flex>
  );
}

/** A file with a notice if another user has changed or deleted it since it was read. */
function LoadedFile({ content, ...props }: OpenFileProps & { content: FileContent }) {
  const { t } = useTranslation();
  const { id, path } = props;
  const [known, setKnown] = useState(() => ({ etag: content.etag, at: Date.now() }));
  const [isDirty, setIsDirty] = useState(false);
  const [overwrite, setOverwrite] = useState<() => void>();
  const { etag, readAt } = useFileVersion(id, path);
  const isChanged = etag !== undefined && etag !== known.etag && readAt > known.at;
  return (
    <>
      {(isChanged || overwrite) && (
        <Alert
          type="warning"
          showIcon
          title={t(etag === null ? 'preview.gone' : 'preview.changed')}
          action={
            <Space wrap>
              {overwrite && <Button onClick={overwrite}>{t('preview.overwrite')}</Button>}
              {etag !== null && (
                <Button onClick={() => void forgetContent(id, path)}>
                  {t(isDirty ? 'preview.reload' : 'preview.load')}
                </Button>
              )}
            </Space>
          }
        />
      )}
      <FileView
        {...props}
        kind={kindOf(path)}
        content={content}
        etag={known.etag}
        onSaved={saved => {
          setKnown({ etag: saved, at: Date.now() });
          setOverwrite(undefined);
          setIsDirty(false);
          props.onSaved();
        }}
        onDirty={setIsDirty}
        onConflict={replace => setOverwrite(() => replace)}
      />
    </>
  );
}
