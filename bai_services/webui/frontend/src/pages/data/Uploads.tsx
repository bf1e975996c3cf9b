import { Button, Card, Flex, Progress, Tag } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import {
  pauseUpload,
  removeDone,
  removeUpload,
  replaceFile,
  resumeUpload,
  useUploads,
  type FileUpload
} from '../../data/folders/uploads';
import { UserText } from '../../components/UserText';

// Maximum number of uploads in the list. There can be hundreds; those not listed are only counted.
const MAX_SHOWN = 20;
const ORDER = ['conflict', 'failed', 'running', 'paused', 'waiting', 'done'];

/** Uploads into a folder: first uploads that need a decision, last completed uploads. */
export function Uploads({ id }: { id: string }) {
  const { t, i18n } = useTranslation();
  const uploads = useUploads().filter(upload => upload.id === id);
  if (uploads.length === 0) {
    return null;
  }
  const done = uploads.filter(({ state }) => state === 'done').length;
  const conflicts = uploads.filter(({ state }) => state === 'conflict');
  const sent = uploads.reduce((sum, upload) => sum + upload.sent, 0);
  const size = uploads.reduce((sum, upload) => sum + upload.size, 0);
  const shown = [...uploads]
    .sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state))
    .slice(0, MAX_SHOWN);
  return (
    <Card
      size="small"
      style={{ marginTop: 12 }}
      title={t('data.uploads', { done, total: uploads.length })}
      extra={
        <Flex gap="small">
          {conflicts.length > 1 && (
            <>
              <Button size="small" onClick={() => conflicts.forEach(({ key }) => replaceFile(key))}>
                {t('data.replace-all')}
              </Button>
              <Button
                size="small"
                onClick={() => conflicts.forEach(({ key }) => removeUpload(key))}
              >
                {t('data.skip-all')}
              </Button>
            </>
          )}
          {done > 0 && (
            <Button size="small" onClick={() => removeDone(id)}>
              {t('data.clear')}
            </Button>
          )}
        </Flex>
      }
    >
      <Progress
        percent={
          size > 0 ? Math.floor((100 * sent) / size) : Math.floor((100 * done) / uploads.length)
        }
        aria-label={t('data.progress', {
          sent: formatBytes(sent, i18n.language),
          size: formatBytes(size, i18n.language)
        })}
      />
      {shown.map(upload => (
        <UploadRow key={upload.key} upload={upload} />
      ))}
      {uploads.length > shown.length && t('data.more', { count: uploads.length - shown.length })}
    </Card>
  );
}

function UploadRow({ upload }: { upload: FileUpload }) {
  const { t, i18n } = useTranslation();
  const { key, state, path } = upload;
  const isActive = state === 'running' || state === 'waiting';
  return (
    <Flex wrap gap="small" align="center" style={{ marginTop: 4 }}>
      <span style={{ flex: 1, minWidth: 120, overflowWrap: 'anywhere' }}>
        <UserText text={path} />
      </span>
      <span>
        {t('data.progress', {
          sent: formatBytes(upload.sent, i18n.language),
          size: formatBytes(upload.size, i18n.language)
        })}
      </span>
      <Tag color={state === 'failed' || state === 'conflict' ? 'red' : 'default'}>
        {t(`data.upload-${state}`)}
      </Tag>
      {state === 'failed' && <span>{upload.error}</span>}
      {isActive && (
        <Button size="small" onClick={() => pauseUpload(key)}>
          {t('data.pause')}
        </Button>
      )}
      {(state === 'paused' || state === 'failed') && (
        <Button size="small" onClick={() => resumeUpload(key)}>
          {t('data.resume')}
        </Button>
      )}
      {state === 'conflict' && (
        <Button size="small" onClick={() => replaceFile(key)}>
          {t('data.replace')}
        </Button>
      )}
      {state !== 'done' && (
        <Button size="small" onClick={() => removeUpload(key)}>
          {t(state === 'conflict' ? 'data.skip' : 'data.cancel-upload')}
        </Button>
      )}
    </Flex>
  );
}
