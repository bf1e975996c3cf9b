import { UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Actions } from './actions';
import { Button } from './button';
import { bytes } from './format';
import type { Model } from './model';
import { level } from './samples';
import type { Translate } from './i18n';
import type { Folder, Quota } from './types';
import { Upload, droppedFiles } from './uploads';

interface Props {
  model: Model;
  actions: Actions;
  t: Translate;
}

/** List of the user's folders with their mount points in this session. */
export function Folders(props: Props): React.ReactElement {
  const { model, t } = props;
  if (!model.folders) {
    return <p className="bai-Hint">{t('loading')}</p>;
  }
  return (
    <>
      {model.quotas.map(quota => (
        <QuotaBar key={`${quota.host}/${quota.scope}`} quota={quota} t={t} />
      ))}
      {model.folders.length === 0 && <p className="bai-Hint">{t('no-folders')}</p>}
      <ul className="bai-List">
        {model.folders.map(folder => (
          <FolderRow key={folder.id} folder={folder} {...props} />
        ))}
      </ul>
      <Button label={t('received')} onClick={() => props.actions.showInvitations()} />
    </>
  );
}

function QuotaBar({ quota, t }: { quota: Quota; t: Translate }): React.ReactElement {
  const { limit_bytes: limit, used_bytes: used } = quota;
  const label = quota.project
    ? t('quota-project', { name: quota.project, host: quota.host })
    : t('quota-own', { host: quota.host });
  const usedText = used === null ? t('unknown') : bytes(used);
  const shown =
    limit === null
      ? t('used-no-limit', { used: usedText })
      : t('of-limit', { used: usedText, limit: bytes(limit) });
  return (
    <div className={`bai-Quota bai-mod-${level(used ?? 0, limit ?? 0)}`}>
      <span className="bai-Hint">{label}</span>
      <span className="bai-Hint">{shown}</span>
      {limit !== null && (
        <progress value={used ?? 0} max={limit || 1} aria-label={`${label}: ${shown}`} />
      )}
    </div>
  );
}

function FolderRow(props: Props & { folder: Folder }): React.ReactElement {
  const { folder, actions, t } = props;
  const [isDragTarget, setDragTarget] = React.useState(false);
  const fileInput = React.useRef<HTMLInputElement>(null);
  const canWrite = folder.permission === 'rw' || folder.permission === 'wd';
  const canUpload = canWrite && folder.status === 'ready';

  const onDragOver = (event: React.DragEvent): void => {
    if (event.dataTransfer.types.includes('Files')) {
      event.preventDefault();
      event.dataTransfer.dropEffect = canUpload ? 'copy' : 'none';
      setDragTarget(canUpload);
    }
  };
  const onDrop = (event: React.DragEvent): void => {
    event.preventDefault();
    setDragTarget(false);
    if (canUpload) {
      actions.upload(folder, droppedFiles(event.dataTransfer));
    }
  };
  const onFilesChosen = (event: React.ChangeEvent<HTMLInputElement>): void => {
    const files = [...(event.target.files ?? [])].map(file => ({ file, path: file.name }));
    event.target.value = '';
    actions.upload(folder, Promise.resolve(files));
  };
  return (
    <li
      className={isDragTarget ? 'bai-mod-over' : ''}
      onDragOver={onDragOver}
      onDragLeave={() => setDragTarget(false)}
      onDrop={onDrop}
    >
      <div className="bai-List-main">
        <span className="bai-List-title">{folder.name}</span>
        <span className="bai-Hint">{folderSummary(folder, t)}</span>
        {isDragTarget && <span className="bai-Hint">{t('drop-here')}</span>}
      </div>
      <span className="bai-Buttons">
        {folder.path && actions.canBrowse(folder.path) && (
          <Button label={t('open')} target={folder.name} onClick={() => actions.browse(folder)} />
        )}
        {canUpload && (
          <Button
            label={t('upload')}
            target={folder.name}
            onClick={() => fileInput.current?.click()}
          />
        )}
        {folder.is_managed && !folder.project && folder.status === 'ready' && (
          <Button
            label={t('share-button')}
            target={folder.name}
            onClick={() => actions.share(folder)}
          />
        )}
      </span>
      {canUpload && (
        <input
          ref={fileInput}
          type="file"
          multiple
          hidden
          aria-hidden="true"
          onChange={onFilesChosen}
        />
      )}
      <UseSignal signal={actions.uploads.changed}>
        {() => <UploadList folder={folder} actions={actions} t={t} />}
      </UseSignal>
    </li>
  );
}

/** Uploads into a folder: a summary, and a line for each upload that needs a decision. */
function UploadList(props: { folder: Folder; actions: Actions; t: Translate }): React.ReactElement {
  const { folder, actions, t } = props;
  const all = actions.uploads.of(folder.id);
  if (all.length === 0) {
    return <></>;
  }
  const done = all.filter(upload => upload.state === 'done').length;
  const total = all.reduce((sum, upload) => sum + upload.file.size, 0);
  const sent = all.reduce((sum, upload) => sum + upload.sent, 0);
  const isInProgress = all.some(({ state }) => state === 'waiting' || state === 'sending');
  return (
    <div className="bai-Uploads">
      <span className="bai-Hint">
        {/* Screen readers announce the number of files only: the byte counts change too often. */}
        <span aria-live="polite">{t('uploaded', { done, count: all.length })}</span>
        {` · ${bytes(sent)} / ${bytes(total)}`}
      </span>
      {isInProgress ? (
        <progress value={sent} max={total || 1} aria-label={t('upload')} />
      ) : (
        <Button
          label={t('clear')}
          target={folder.name}
          onClick={() => actions.uploads.clear(folder.id)}
        />
      )}
      {all.filter(needsDecision).map(upload => (
        <div key={upload.path} className="bai-Uploads-item">
          <span className="bai-Problem" role="alert">
            {upload.path}: {upload.state === 'exists' ? t('upload-exists') : upload.message}
          </span>
          <span className="bai-Buttons">
            {upload.state === 'exists' ? (
              <Button
                label={t('replace')}
                target={upload.path}
                onClick={() => actions.uploads.replace(upload)}
              />
            ) : (
              <Button
                label={t('resume')}
                target={upload.path}
                onClick={() => actions.resumeUpload(upload)}
              />
            )}
            <Button
              label={t('skip')}
              target={upload.path}
              onClick={() => actions.uploads.stop(upload)}
            />
          </span>
        </div>
      ))}
      {isInProgress && (
        <Button
          label={t('cancel')}
          target={t('upload')}
          onClick={() => all.forEach(upload => actions.uploads.stop(upload))}
        />
      )}
    </div>
  );
}

function needsDecision(upload: Upload): boolean {
  return upload.state === 'failed' || upload.state === 'exists';
}

function folderSummary(folder: Folder, t: Translate): string {
  return [
    folder.path ? t('mounted-at', { path: folder.path }) : t('not-mounted'),
    folder.project ?? (folder.is_owner ? '' : (folder.owner ?? '')),
    folder.permission === 'ro' ? t('ro') : '',
    folder.used_bytes === null ? '' : bytes(folder.used_bytes)
  ]
    .filter(text => text !== '')
    .join(' · ');
}
