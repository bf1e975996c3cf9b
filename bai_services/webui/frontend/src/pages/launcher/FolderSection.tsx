import { useState } from 'react';
import { Button, Checkbox, Flex, Input, Select, Tag, Typography, Upload } from 'antd';
import { PlusOutlined, UploadOutlined } from '@ant-design/icons';
import { Link } from '@tanstack/react-router';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/accounts/me';
import type { Schemas } from '../../data/client';
import { addUploads } from '../../data/folders/uploads';
import { CreateFolder } from '../data/CreateFolder';
import { Uploads } from '../data/Uploads';
import { Field, idOf } from './Field';
import type { MountRow } from './form';
import { problemOf, useLauncher } from './launcherContext';
import { folderOf, newMount } from './mounts';

type OfferedFolder = Schemas['OfferedFolder'];

// A list with at least this number of folders has a search field.
const SEARCH_FROM = 8;

/** Folders to mount with their mount paths and permissions, and the auto-mounted folders. */
export function FolderSection() {
  const { t } = useTranslation();
  const { form, change, options, preview } = useLauncher();
  const [isCreating, setCreating] = useState(false);
  const [text, setText] = useState('');
  const { data: me } = useQuery(meQuery);
  const all = options?.vfolders ?? [];
  // The folder of each mount, in the order of the mounts.
  const mounted = form.mounts.map(mount => folderOf(mount, all, me?.username ?? ''));
  const automatic = all.filter(folder => folder.is_auto_mounted);
  const shown = all.filter(
    ({ name, is_auto_mounted: isAutomatic }) => !isAutomatic && name.includes(text)
  );
  const remove = (index: number) =>
    change({ mounts: form.mounts.filter((_, other) => other !== index) });
  return (
    <>
      <Flex wrap gap="small" style={{ marginBottom: 12 }}>
        {all.length >= SEARCH_FROM && (
          <Input.Search
            allowClear
            style={{ maxWidth: 240 }}
            placeholder={t('launcher.find-folder')}
            aria-label={t('launcher.find-folder')}
            onChange={event => setText(event.target.value)}
          />
        )}
        <Button icon={<PlusOutlined />} onClick={() => setCreating(true)}>
          {t('launcher.new-folder')}
        </Button>
      </Flex>
      {all.length === 0 && <p>{t('launcher.no-folders')}</p>}
      {form.mounts.map(
        ({ vfolder }, index) =>
          mounted[index] === undefined && (
            <Flex key={index} gap="small" align="center">
              <Typography.Text type="danger">
                {problemOf(preview, `mounts.${index}.vfolder`) ?? vfolder}
              </Typography.Text>
              <Button size="small" onClick={() => remove(index)}>
                {t('launcher.remove')}
              </Button>
            </Flex>
          )
      )}
      {shown.map(folder => (
        <FolderRow
          key={folder.id}
          folder={folder}
          index={mounted.findIndex(other => other?.id === folder.id)}
        />
      ))}
      {automatic.length > 0 && (
        <p>
          {t('launcher.auto-mounted')}{' '}
          {automatic.map(({ id, name }) => (
            <Tag key={id}>{name}</Tag>
          ))}
        </p>
      )}
      <CreateFolder
        isOpen={isCreating}
        onClose={() => setCreating(false)}
        onCreated={folder => change({ mounts: [...form.mounts, newMount(folder, all)] })}
      />
    </>
  );
}

/** Upload files to the top of a folder; the launch does not wait for them. */
function UploadButton({ folder }: { folder: OfferedFolder }) {
  const { t } = useTranslation();
  return (
    <Upload
      multiple
      showUploadList={false}
      beforeUpload={file => {
        addUploads({ id: folder.id, path: '' }, [{ file, path: file.name }]);
        return false;
      }}
    >
      <Button
        type="link"
        size="small"
        icon={<UploadOutlined />}
        aria-label={t('launcher.upload-to', { folder: folder.name })}
      >
        {t('data.upload')}
      </Button>
    </Upload>
  );
}

/** A folder with its mount; `index` is the index of the mount, or -1. */
function FolderRow({ folder, index }: { folder: OfferedFolder; index: number }) {
  const { t } = useTranslation();
  const { form, change, options } = useLauncher();
  const mount = form.mounts[index];
  const set = (changes: Partial<MountRow>) =>
    change({ mounts: form.mounts.map((old, n) => (n === index ? { ...old, ...changes } : old)) });
  return (
    <div style={{ marginBottom: 8 }}>
      <Flex gap="small" align="center" wrap>
        <Checkbox
          checked={mount !== undefined}
          onChange={event =>
            change({
              mounts: event.target.checked
                ? [...form.mounts, newMount(folder, options?.vfolders ?? [])]
                : form.mounts.filter((_, n) => n !== index)
            })
          }
        >
          {folder.name}
        </Checkbox>
        <Typography.Text type="secondary">{folder.owner}</Typography.Text>
        <Link to="/data" search={{ folder: folder.id }} target="_blank">
          {t('launcher.files')}
        </Link>
        {folder.permission !== 'ro' && <UploadButton folder={folder} />}
      </Flex>
      <Uploads id={folder.id} />
      {mount && (
        <Flex wrap gap="middle" style={{ paddingInlineStart: 24 }}>
          <Field name={`mounts.${index}.path`} label={t('launcher.mount-path')}>
            <Input
              id={idOf(`mounts.${index}.path`)}
              placeholder={`/home/work/${folder.name}`}
              value={mount.path}
              onChange={event => set({ path: event.target.value })}
            />
          </Field>
          <Field name={`mounts.${index}.vfolder`} label={t('launcher.permission')}>
            <Select
              id={idOf(`mounts.${index}.vfolder`)}
              style={{ minWidth: 180 }}
              value={mount.permission || folder.permission}
              onChange={permission => set({ permission: permission as MountRow['permission'] })}
              options={(folder.permission === 'ro' ? ['ro'] : ['ro', 'rw']).map(value => ({
                value,
                label: t(`permissions.${value}`)
              }))}
            />
          </Field>
        </Flex>
      )}
    </div>
  );
}
