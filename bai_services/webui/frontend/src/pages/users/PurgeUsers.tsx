import { useState } from 'react';
import { Alert, Form, Input, Modal, Radio } from 'antd';
import { useTranslation } from 'react-i18next';
import { ReferenceSelect } from '../../components/entities/FieldControl';
import { usePurgeUsers, type PurgeAction, type PurgeFailure } from '../../data/accounts/users';

interface PurgeUsersProps {
  names: readonly string[];
  /** Called with the users that remain. */
  onClose: (left: readonly string[]) => void;
}

const ACTIONS: readonly PurgeAction[] = ['transfer', 'delete'];

/**
 * Dialog to remove users permanently. To confirm, the administrator types the name of the only
 * user, or "purge" and the number of users.
 * It lists the users that the server refused to purge, with the reasons.
 */
export function PurgeUsers({ names, onClose }: PurgeUsersProps) {
  const { t } = useTranslation();
  const [folders, setFolders] = useState<PurgeAction>('transfer');
  const [sharedFolders, setSharedFolders] = useState<PurgeAction>('transfer');
  const [owner, setOwner] = useState('');
  const [typed, setTyped] = useState('');
  const [failures, setFailures] = useState<readonly PurgeFailure[]>([]);
  const [left, setLeft] = useState(names);
  const purge = usePurgeUsers();
  const phrase = left.length === 1 ? String(left[0]) : `purge ${left.length}`;
  const isTransfer = folders === 'transfer' || sharedFolders === 'transfer';
  const options = ACTIONS.map(value => ({ value, label: t(`users.purge-${value}`) }));
  const submit = () =>
    purge.mutate(
      {
        names: left,
        options: { folders, shared_folders: sharedFolders, new_owner: isTransfer ? owner : '' }
      },
      {
        onSuccess: found => {
          setFailures(found);
          setTyped('');
          setLeft(found.map(({ name }) => name));
          if (found.length === 0) {
            onClose([]);
          }
        }
      }
    );
  return (
    <Modal
      open
      title={t('users.purge-title', { count: left.length, name: phrase })}
      okText={t('users.purge')}
      okButtonProps={{ danger: true, disabled: typed !== phrase }}
      confirmLoading={purge.isPending}
      onOk={submit}
      onCancel={() => onClose(left)}
    >
      <Alert type="warning" showIcon title={t('users.purge-warning')} />
      <Form layout="vertical" style={{ marginBlockStart: 16 }}>
        <Form.Item label={t('users.purge-folders')}>
          <Radio.Group
            options={options}
            value={folders}
            onChange={event => setFolders(event.target.value as PurgeAction)}
          />
        </Form.Item>
        <Form.Item label={t('users.purge-shared-folders')}>
          <Radio.Group
            options={options}
            value={sharedFolders}
            onChange={event => setSharedFolders(event.target.value as PurgeAction)}
          />
        </Form.Item>
        {isTransfer && (
          <Form.Item
            label={t('users.purge-new-owner')}
            htmlFor="purge-new-owner"
            extra={t('users.purge-new-owner-help')}
          >
            <ReferenceSelect
              id="purge-new-owner"
              of={{ path: '/users', name: 'username' }}
              allowClear
              {...(owner ? { value: owner } : {})}
              onChange={(value: string | undefined) => setOwner(value ?? '')}
            />
          </Form.Item>
        )}
        <Form.Item label={t('users.purge-phrase', { phrase })} htmlFor="purge-phrase">
          <Input
            id="purge-phrase"
            autoComplete="off"
            value={typed}
            onChange={event => setTyped(event.target.value)}
          />
        </Form.Item>
      </Form>
      {failures.length > 0 && (
        <Alert
          type="error"
          showIcon
          title={t('users.purge-failed', { count: failures.length })}
          description={failures.map(({ name, message }) => (
            <div key={name}>
              {name}: {message}
            </div>
          ))}
        />
      )}
    </Modal>
  );
}
