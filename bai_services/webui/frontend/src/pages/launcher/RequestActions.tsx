import { useState } from 'react';
import { App, Button, Flex, Input, Modal, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSaveTemplate } from '../../data/sessions/launch';
import { commandOf } from './command';
import { requestOf, withoutSecrets, type LaunchForm } from './form';

/** Save the form as a template, or copy it as a command. */
export function RequestActions({ form }: { form: LaunchForm }) {
  const { t } = useTranslation();
  const [isSaving, setSaving] = useState(false);
  const command = commandOf(requestOf(form));
  return (
    <Flex vertical gap="small" align="start" style={{ marginBlockStart: 16 }}>
      <Button onClick={() => setSaving(true)}>{t('launcher.save-template')}</Button>
      <Typography.Text
        code
        copyable={{ text: command, tooltips: [t('launcher.copy-command'), ''] }}
        style={{ fontSize: 12, wordBreak: 'break-all' }}
      >
        {command}
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
    const request = withoutSecrets(requestOf({ ...props.form, name: '', owner: '' }));
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
