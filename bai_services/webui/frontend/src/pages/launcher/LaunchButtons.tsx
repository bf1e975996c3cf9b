import { useState } from 'react';
import { App, Button, Flex, Input, InputNumber, Modal, Typography } from 'antd';
import { useNavigate } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { useLaunch, useSaveTemplate } from '../../data/sessions/launch';
import { commandOf } from './command';
import { requestOf, withoutSecrets, type LaunchForm } from './form';

const MAX_COUNT = 100;

interface LaunchButtonsProps {
  form: LaunchForm;
  /** Whether the server has accepted the current values of the form. */
  isValid: boolean;
  /** Whether the session would mount a folder. */
  hasFolder: boolean;
}

/** Start the session, save the form as a template, or copy it as a command. */
export function LaunchButtons({ form, isValid, hasFolder }: LaunchButtonsProps) {
  const { t } = useTranslation();
  const { message, modal } = App.useApp();
  const navigate = useNavigate();
  const launch = useLaunch(error => void message.error(error.message));
  const [count, setCount] = useState(1);
  const [isSaving, setSaving] = useState(false);
  const request = requestOf(form);
  const start = () =>
    launch.mutate(
      { request, count },
      {
        onSuccess: sessions => {
          const [first] = sessions;
          void navigate({
            to: '/sessions',
            search: sessions.length === 1 && first ? { session: first.id } : {}
          });
        }
      }
    );
  const confirm = () => {
    modal.confirm({
      title: t('launcher.no-folder-title'),
      content: t('launcher.no-folder-warning'),
      okText: t('launcher.launch', { count }),
      onOk: start
    });
  };
  return (
    <Flex vertical gap="small" style={{ marginBlockStart: 16 }}>
      <Flex gap="small">
        <Button
          type="primary"
          size="large"
          style={{ flex: 1 }}
          disabled={!isValid}
          loading={launch.isPending}
          onClick={hasFolder ? start : confirm}
        >
          {t('launcher.launch', { count })}
        </Button>
        <InputNumber
          size="large"
          style={{ width: 80 }}
          aria-label={t('launcher.count')}
          min={1}
          max={MAX_COUNT}
          precision={0}
          value={count}
          onChange={value => setCount(value ?? 1)}
        />
      </Flex>
      <Flex gap="small" wrap>
        <Button onClick={() => setSaving(true)}>{t('launcher.save-template')}</Button>
      </Flex>
      <Typography.Text
        code
        copyable={{ text: commandOf(request), tooltips: [t('launcher.copy-command'), ''] }}
        style={{ fontSize: 12, wordBreak: 'break-all' }}
      >
        {commandOf(request)}
      </Typography.Text>
      <SaveTemplate form={form} isOpen={isSaving} onClose={() => setSaving(false)} />
    </Flex>
  );
}

function SaveTemplate(props: { form: LaunchForm; isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [name, setName] = useState('');
  const save = useSaveTemplate();
  const submit = () => {
    const request = withoutSecrets(requestOf({ ...props.form, name: '' }));
    save.mutate(
      { name, request },
      {
        onSuccess: () => {
          void message.success(t('launcher.template-saved', { name }));
          props.onClose();
        }
      }
    );
  };
  return (
    <Modal
      open={props.isOpen}
      onCancel={props.onClose}
      onOk={submit}
      confirmLoading={save.isPending}
      okButtonProps={{ disabled: name === '' }}
      title={t('launcher.save-template')}
      destroyOnHidden
    >
      <p>{t('launcher.template-help')}</p>
      <Input
        autoFocus
        aria-label={t('launcher.template-name')}
        placeholder={t('launcher.template-name')}
        value={name}
        onChange={event => setName(event.target.value)}
        onPressEnter={() => name && submit()}
      />
      {save.error && (
        <Typography.Text type="danger" role="alert">
          {save.error.message}
        </Typography.Text>
      )}
    </Modal>
  );
}
