import { UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Actions } from './actions';
import { Button } from './button';
import { bytes } from './format';
import type { Model } from './model';
import { level } from './samples';
import type { Translate } from './texts';
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
      <Button label={t('received')} onClick={() => props.actions.showReceived()} />
    </>
  );
}

function QuotaBar({ quota, t }: { quota: Quota; t: Translate }): React.ReactElement {
  const { limit_bytes: limit, used_bytes: used } = quota;
  const whose = quota.project
    ? t('quota-project', { name: quota.project, host: quota.host })
    : t('quota-own', { host: quota.host });
  const counted = used === null ? t('unknown') : bytes(used);
  const shown =
    limit === null
      ? t('used-no-limit', { used: counted })
      : t('of-limit', { used: counted, limit: bytes(limit) });
  return (
    <div className={`bai-Quota bai-mod-${level(used ?? 0, limit ?? 0)}`}>
      <span className="bai-Hint">{whose}</span>
      <span className="bai-Hint">{shown}</span>
      {limit !== null && (
        <progress value={used ?? 0} max={limit || 1} aria-label={`${whose}: ${shown}`} />
      )}
    </div>
  );
}

function FolderRow(props: Props & { folder: Folder }): React.ReactElement {
  const { folder, actions, t } = props;
  const [isOver, setOver] = React.useState(false);
  const chosen = React.useRef<HTMLInputElement>(null);
  const canWrite = folder.is_owner || folder.permission === 'rw' || folder.permission === 'wd';
  const canTake = canWrite && folder.status === 'ready';

  const over = (event: React.DragEvent): void => {
    if (event.dataTransfer.types.includes('Files')) {
      event.preventDefault();
      event.dataTransfer.dropEffect = canTake ? 'copy' : 'none';
      setOver(canTake);
    }
  };
  const drop = (event: React.DragEvent): void => {
    event.preventDefault();
    setOver(false);
    if (canTake) {
      actions.upload(folder, droppedFiles(event.dataTransfer));
    }
  };
  const choose = (event: React.ChangeEvent<HTMLInputElement>): void => {
    const files = [...(event.target.files ?? [])].map(file => ({ file, path: file.name }));
    event.target.value = '';
    actions.upload(folder, Promise.resolve(files));
  };
  return (
    <li
      className={isOver ? 'bai-mod-over' : ''}
      onDragOver={over}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <div className="bai-List-main">
        <span className="bai-List-title">{folder.name}</span>
        <span className="bai-Hint">{folderFacts(folder, t)}</span>
        {isOver && <span className="bai-Hint">{t('drop-here')}</span>}
      </div>
      <span className="bai-Buttons">
        {folder.path && actions.canBrowse(folder.path) && (
          <Button label={t('open')} target={folder.name} onClick={() => actions.browse(folder)} />
        )}
        {canTake && (
          <Button
            label={t('upload')}
            target={folder.name}
            onClick={() => chosen.current?.click()}
          />
        )}
        {folder.is_owner && !folder.project && folder.status === 'ready' && (
          <Button
            label={t('share-button')}
            target={folder.name}
            onClick={() => actions.share(folder)}
          />
        )}
      </span>
      {canTake && (
        <input ref={chosen} type="file" multiple hidden aria-hidden="true" onChange={choose} />
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
  const isUnderWay = all.some(({ state }) => state === 'waiting' || state === 'sending');
  return (
    <div className="bai-Uploads">
      <span className="bai-Hint">
        {/* The byte counts change too often to be announced by a screen reader. */}
        <span aria-live="polite">{t('uploaded', { done, count: all.length })}</span>
        {` · ${bytes(sent)} / ${bytes(total)}`}
      </span>
      {isUnderWay ? (
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
                onClick={() => actions.uploadAgain(upload)}
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
      {isUnderWay && (
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

function folderFacts(folder: Folder, t: Translate): string {
  return [
    folder.path ? t('mounted-at', { path: folder.path }) : t('not-mounted'),
    folder.project ?? (folder.is_owner ? '' : (folder.owner ?? '')),
    folder.permission === 'ro' ? t('ro') : '',
    folder.used_bytes === null ? '' : bytes(folder.used_bytes)
  ]
    .filter(text => text !== '')
    .join(' · ');
}
