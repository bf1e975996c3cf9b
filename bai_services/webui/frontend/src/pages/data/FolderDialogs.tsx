import { useId, useState } from 'react';
import { App, Form, Input, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import {
  useChangeFolder,
  useCloneFolder,
  useFolderStep,
  useTransferFolder,
  type Folder
} from '../../data/folders/folders';
import {
  CloneableField,
  FolderError,
  HostField,
  NameField,
  PermissionField,
  UsageModeField
} from './FolderFields';

interface DialogProps {
  folder: Folder;
  onClose: () => void;
}

interface Settings {
  name: string;
  usage_mode: 'general' | 'model' | 'data';
  permission: 'ro' | 'rw';
  cloneable: boolean;
}

const settingsOf = (folder: Folder) => ({
  name: folder.name,
  usage_mode: folder.usage_mode,
  permission: folder.mount_permission,
  cloneable: folder.cloneable
});

/** Rename the folder, or change its settings. */
export function ChangeFolder({ folder, onClose }: DialogProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Settings>();
  const change = useChangeFolder();
  const submit = (changes: Settings) =>
    change.mutate({ id: folder.id, changes }, { onSuccess: onClose });
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('data.change-title', { name: folder.name })}
      okText={t('data.save')}
      onOk={form.submit}
      confirmLoading={change.isPending}
    >
      <Form form={form} layout="vertical" onFinish={submit} initialValues={settingsOf(folder)}>
        <NameField error={change.error} />
        <FolderError error={change.error} />
        <UsageModeField />
        <PermissionField />
        <CloneableField />
      </Form>
    </Modal>
  );
}

/** Copy the folder with all its files, in the background. */
export function CloneFolder({ folder, onClose }: DialogProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<Settings & { host?: string }>();
  const id = useId();
  const clone = useCloneFolder();
  const submit = (values: Settings & { host?: string }) =>
    clone.mutate(
      { id: folder.id, clone: values },
      {
        onSuccess: ({ name }) => {
          void message.success(t('data.cloning', { name }));
          onClose();
        }
      }
    );
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('data.clone-title', { name: folder.name })}
      okText={t('data.clone')}
      // A submit button, so that Enter submits the form.
      okButtonProps={{ htmlType: 'submit', form: id }}
      confirmLoading={clone.isPending}
    >
      <Form
        id={id}
        form={form}
        layout="vertical"
        onFinish={submit}
        initialValues={{ ...settingsOf(folder), name: `${folder.name}-copy` }}
      >
        <NameField error={clone.error} />
        <FolderError error={clone.error} />
        <HostField needed="create-vfolder" error={clone.error} />
        <UsageModeField />
        <PermissionField />
        <CloneableField />
      </Form>
    </Modal>
  );
}

export function TransferFolder({ folder, onClose }: DialogProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ user: string }>();
  const transfer = useTransferFolder();
  const submit = ({ user }: { user: string }) =>
    transfer.mutate({ id: folder.id, user }, { onSuccess: onClose });
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('data.transfer-title', { name: folder.name })}
      okText={t('data.transfer')}
      onOk={form.submit}
      confirmLoading={transfer.isPending}
    >
      <p>{t('data.transfer-help')}</p>
      <Form form={form} layout="vertical" onFinish={submit}>
        <Form.Item
          name="user"
          label={t('data.user')}
          rules={[{ required: true, message: t('data.user-needed') }]}
          {...(transfer.error
            ? { validateStatus: 'error' as const, help: transfer.error.message }
            : {})}
        >
          <Input autoFocus autoComplete="off" />
        </Form.Item>
      </Form>
    </Modal>
  );
}

/** Delete a folder permanently, after the user typed its name. */
export function PurgeFolder({ folder, onClose }: DialogProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [typed, setTyped] = useState('');
  const step = useFolderStep();
  const purge = async () => {
    const failures = await step.mutateAsync({ folders: [folder], step: 'purge' });
    failures.forEach(({ error }) => void message.error(error.message));
    onClose();
  };
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('data.purge-title', { name: folder.name })}
      okText={t('data.purge')}
      okButtonProps={{ danger: true, disabled: typed !== folder.name }}
      onOk={() => void purge()}
      confirmLoading={step.isPending}
    >
      <p>{t('data.purge-help')}</p>
      <Input
        autoFocus
        autoComplete="off"
        value={typed}
        onChange={event => setTyped(event.target.value)}
        aria-label={t('data.type-name', { name: folder.name })}
        placeholder={folder.name}
      />
    </Modal>
  );
}
