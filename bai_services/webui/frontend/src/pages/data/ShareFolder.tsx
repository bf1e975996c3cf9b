import { App, Button, Form, Input, Modal, Select, Tag } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import {
  grantsQuery,
  pendingInvitationsQuery,
  useShareFolder,
  useStopSharing,
  type Folder,
  type SharePermission
} from '../../data/folders/folders';

const PERMISSIONS: SharePermission[] = ['ro', 'rw'];
const PAGE_SIZE = 20;

interface SharedUser {
  id: string;
  name: string;
  permission: SharePermission;
  isPending: boolean;
}

/** Dialog to invite users, and to change or end grants and pending invitations. */
export function ShareFolder({ folder, onClose }: { folder: Folder; onClose: () => void }) {
  const { t } = useTranslation();
  const grants = useQuery(grantsQuery(folder.id));
  const invitations = useQuery(pendingInvitationsQuery(folder.id));
  const users: SharedUser[] = [
    ...(grants.data ?? []).map(({ user, user_id: id, permission }) => ({
      id,
      name: user,
      permission,
      isPending: false
    })),
    ...(invitations.data ?? []).map(({ invitee, invitee_id: id, permission }) => ({
      id,
      name: invitee,
      permission,
      isPending: true
    }))
  ];
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('data.share-title', { name: folder.name })}
      footer={null}
    >
      {folder.project && <p>{t('data.share-project', { name: folder.project })}</p>}
      <InviteForm folder={folder} />
      <SharedUsers
        folder={folder}
        users={users}
        isLoading={grants.isLoading || invitations.isLoading}
      />
    </Modal>
  );
}

function usePermissionChoices() {
  const { t } = useTranslation();
  return PERMISSIONS.map(value => ({ value, label: t(`permissions.${value}`) }));
}

function InviteForm({ folder }: { folder: Folder }) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ user: string; permission: SharePermission }>();
  const choices = usePermissionChoices();
  const share = useShareFolder();
  const submit = (values: { user: string; permission: SharePermission }) =>
    share.mutate({ id: folder.id, ...values }, { onSuccess: () => form.resetFields() });
  return (
    <Form form={form} layout="vertical" onFinish={submit} initialValues={{ permission: 'ro' }}>
      <Form.Item
        name="user"
        label={t('data.user')}
        rules={[{ required: true, message: t('data.user-needed') }]}
        {...(share.error ? { validateStatus: 'error' as const, help: share.error.message } : {})}
      >
        <Input autoFocus autoComplete="off" />
      </Form.Item>
      <Form.Item name="permission" label={t('data.permission')}>
        <Select options={choices} />
      </Form.Item>
      <Button htmlType="submit" type="primary" loading={share.isPending}>
        {t('data.invite')}
      </Button>
    </Form>
  );
}

function SharedUsers(props: { folder: Folder; users: SharedUser[]; isLoading: boolean }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const choices = usePermissionChoices();
  const share = useShareFolder();
  const stop = useStopSharing();
  const { id } = props.folder;
  const onError = (error: Error) => void message.error(error.message);
  return (
    <CardTable<SharedUser>
      rowKey="id"
      size="small"
      style={{ marginTop: 16 }}
      pagination={{ pageSize: PAGE_SIZE, hideOnSinglePage: true, showSizeChanger: false }}
      loading={props.isLoading}
      dataSource={props.users}
      locale={{ emptyText: t('data.not-shared') }}
      columns={[
        {
          key: 'user',
          title: t('data.user-name'),
          render: (_, user) => (
            <>
              {user.name} {user.isPending && <Tag>{t('data.invited')}</Tag>}
            </>
          )
        },
        {
          key: 'permission',
          title: t('data.permission'),
          render: (_, user) => (
            <Select
              value={user.permission}
              options={choices}
              aria-label={t('data.permission-of', { name: user.name })}
              onChange={permission => share.mutate({ id, user: user.id, permission }, { onError })}
            />
          )
        },
        {
          key: 'stop',
          title: '',
          render: (_, user) => (
            <Button size="small" onClick={() => stop.mutate({ id, user: user.id }, { onError })}>
              {t('data.stop-sharing')}
            </Button>
          )
        }
      ]}
    />
  );
}
