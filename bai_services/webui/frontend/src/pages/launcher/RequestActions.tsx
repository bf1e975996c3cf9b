import { useState } from 'react';
import { App, Button, Flex, Input, Modal, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSaveTemplate } from '../../data/sessions/launch';
import { commandOf } from './command';
import { requestOf, withoutSecrets, type LaunchForm } from './form';
import { ScheduleRequest } from './ScheduleRequest';

/** Save the form as a template, schedule it, or copy it as a command. */
export function RequestActions({ form }: { form: LaunchForm }) {
  const { t } = useTranslation();
  const [isSaving, setSaving] = useState(false);
  const [isScheduling, setScheduling] = useState(false);
  const command = commandOf(requestOf(form));
  return (
    <Flex vertical gap="small" align="start" style={{ marginBlockStart: 16 }}>
      <Flex wrap gap="small">
        <Button onClick={() => setSaving(true)}>{t('launcher.save-template')}</Button>
        <Button onClick={() => setScheduling(true)}>{t('launcher.schedule')}</Button>
      </Flex>
      <Typography.Text
        code
        copyable={{ text: command, tooltips: [t('launcher.copy-command'), ''] }}
        style={{ fontSize: 12, wordBreak: 'break-all' }}
      >
        {command}
      </Typography.Text>
      <SaveTemplate form={form} isOpen={isSaving} onClose={() => setSaving(false)} />
      <ScheduleRequest form={form} isOpen={isScheduling} onClose={() => setScheduling(false)} />
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
