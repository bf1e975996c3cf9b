import { useId } from 'react';
import { App, Form, Modal } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { useCreateFolder, type Folder } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import {
  CloneableField,
  FolderError,
  HostField,
  NameField,
  PermissionField,
  ProjectField,
  UsageModeField
} from './FolderFields';

interface Values {
  name: string;
  host?: string;
  project?: string;
  usage_mode: 'general' | 'model' | 'data';
  permission: 'ro' | 'rw';
  cloneable: boolean;
}

interface CreateFolderProps {
  isOpen: boolean;
  onClose: () => void;
  onCreated?: (folder: Folder) => void;
}

/** A dialog that creates a folder; an error is shown at its field. */
export function CreateFolder({ isOpen, onClose, onCreated }: CreateFolderProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<Values>();
  const id = useId();
  const { data: me } = useQuery(meQuery);
  const create = useCreateFolder();
  const close = () => {
    create.reset();
    onClose();
  };
  const submit = (values: Values) =>
    create.mutate(values, {
      onSuccess: folder => {
        void message.success(t('data.created', { name: folder.name }));
        onCreated?.(folder);
        close();
      }
    });
  return (
    <Modal
      open={isOpen}
      onCancel={close}
      title={t('data.create')}
      okText={t('data.create')}
      // A submit button, so that Enter submits the form.
      okButtonProps={{ htmlType: 'submit', form: id }}
      confirmLoading={create.isPending}
      destroyOnHidden
    >
      <Form
        id={id}
        form={form}
        layout="vertical"
        onFinish={submit}
        preserve={false}
        initialValues={{ usage_mode: 'general', permission: 'rw', cloneable: false }}
      >
        <NameField error={create.error} />
        <FolderError error={create.error} />
        <HostField needed="create-vfolder" error={create.error} />
        {(me?.role === 'admin' || me?.role === 'superadmin') && <ProjectField />}
        <UsageModeField />
        <PermissionField />
        <CloneableField />
      </Form>
    </Modal>
  );
}
