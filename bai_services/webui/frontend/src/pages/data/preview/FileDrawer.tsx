import { App, Button, Drawer, Flex, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { contentQuery } from '../../../data/folders/fileContent';
import { downloadUrl } from '../../../data/folders/files';
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
      title={path && <UserText text={path.slice(path.lastIndexOf('/') + 1)} />}
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
      {data && <FileView {...props} kind={kind} content={data} />}
    </Flex>
  );
}
