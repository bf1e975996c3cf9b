import { useState } from 'react';
import { Button, Dropdown, Form, Input, InputNumber, Modal, type MenuProps } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { useIsReadOnly } from '../../../data/accounts/me';
import {
  canSuspend,
  isEnded,
  isPending,
  useChangeSession,
  type Session
} from '../../../data/sessions/sessions';
import { requestOfSession } from '../../launcher/form';
import { CommitDialog } from './CommitDialog';
import { ResizeDialog } from './ResizeDialog';
import { SuspendDialog } from './SuspendDialog';
import { onMenuKeyDown } from '../../../components/menuKeys';

/**
 * Menu with further actions: rename, change the priority, resize, commit to an image, suspend, create a
 * session like this one. Read-only roles may change their own sessions, but do not get the action that creates a session.
 */
export function SessionMenu({ session }: { session: Session }) {
  const { t } = useTranslation();
  const [field, setField] = useState<'name' | 'priority' | 'size'>();
  const [isSuspending, setIsSuspending] = useState(false);
  const [isCommitting, setIsCommitting] = useState(false);
  const mayCreate = useIsReadOnly() === false;
  const items: MenuProps['items'] = [
    !isEnded(session) && {
      key: 'name',
      label: t('sessions.rename'),
      onClick: () => setField('name')
    },
    isPending(session) && {
      key: 'priority',
      label: t('sessions.priority'),
      onClick: () => setField('priority')
    },
    session.status === 'RUNNING' &&
      session.cluster_size === 1 && {
        key: 'size',
        label: t('sessions.resize'),
        onClick: () => setField('size')
      },
    mayCreate &&
      session.status === 'RUNNING' &&
      session.type === 'interactive' &&
      session.cluster_size === 1 && {
        key: 'commit',
        label: t('sessions.commit'),
        onClick: () => setIsCommitting(true)
      },
    canSuspend(session) && {
      key: 'suspend',
      label: t('sessions.suspend'),
      onClick: () => setIsSuspending(true)
    },
    mayCreate && {
      key: 'again',
      label: (
        <Link to="/launch" search={{ request: requestOfSession(session) }}>
          {t('sessions.start-again')}
        </Link>
      )
    }
  ].filter(item => item !== false);
  if (items.length === 0) {
    return null;
  }
  return (
    <>
      <Dropdown autoFocus trigger={['click']} menu={{ onKeyDown: onMenuKeyDown, items }}>
        <Button>{t('sessions.more')}</Button>
      </Dropdown>
      {field === 'size' && <ResizeDialog session={session} onClose={() => setField(undefined)} />}
      {(field === 'name' || field === 'priority') && (
        <ChangeField session={session} field={field} onClose={() => setField(undefined)} />
      )}
      {isCommitting && <CommitDialog session={session} onClose={() => setIsCommitting(false)} />}
      {isSuspending && <SuspendDialog session={session} onClose={() => setIsSuspending(false)} />}
    </>
  );
}

interface ChangeFieldProps {
  session: Session;
  field: 'name' | 'priority';
  onClose: () => void;
}

function ChangeField({ session, field, onClose }: ChangeFieldProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ value: string | number }>();
  const change = useChangeSession(session.id);
  const submit = ({ value }: { value: string | number }) =>
    change.mutate(
      { kind: 'fields', values: { [field]: value } },
      {
        onSuccess: onClose,
        onError: error => form.setFields([{ name: 'value', errors: [error.message] }])
      }
    );
  return (
    <Modal
      open
      title={t(field === 'name' ? 'sessions.rename' : 'sessions.priority')}
      onCancel={onClose}
      onOk={form.submit}
      confirmLoading={change.isPending}
      okText={t('entities.save')}
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={{ value: session[field] }}
        onFinish={submit}
      >
        <Form.Item
          name="value"
          label={t(`sessions.${field}`)}
          extra={field === 'priority' ? t('sessions.priority-help') : undefined}
        >
          {field === 'name' ? <Input autoFocus /> : <InputNumber autoFocus min={0} precision={0} />}
        </Form.Item>
      </Form>
    </Modal>
  );
}
