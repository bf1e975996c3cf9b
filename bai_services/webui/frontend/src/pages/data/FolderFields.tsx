import { Alert, Checkbox, Form, Input, Radio, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { hostsQuery } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import { hasOtherProblem, problemAt, type FolderField } from './folderProblems';

const MAX_NAME = 64;

function errorProps(field: FolderField, error: Error | null) {
  const help = problemAt(field, error);
  return help === undefined ? {} : { validateStatus: 'error' as const, help };
}

export function NameField({ error }: { error: Error | null }) {
  const { t } = useTranslation();
  return (
    <Form.Item
      name="name"
      label={t('data.name')}
      extra={t('data.name-help')}
      rules={[{ required: true, message: t('data.name-needed') }]}
      {...errorProps('name', error)}
    >
      <Input autoFocus autoComplete="off" maxLength={MAX_NAME} />
    </Form.Item>
  );
}

/** An error that is not shown at a field. */
export function FolderError({ error }: { error: Error | null }) {
  return error && hasOtherProblem(error) ? (
    <Alert type="error" showIcon title={error.message} style={{ marginBottom: 16 }} />
  ) : null;
}

/**
 * Choice of a storage host with its free space; hosts without the permission `needed` are disabled.
 */
export function HostField({ needed, error }: { needed: string; error: Error | null }) {
  const { t, i18n } = useTranslation();
  const { data } = useQuery(hostsQuery);
  const usual = data?.find(host => host.is_default)?.name;
  return (
    <Form.Item name="host" label={t('data.host')} {...errorProps('host', error)}>
      <Select
        placeholder={usual}
        allowClear
        options={(data ?? []).map(host => ({
          value: host.name,
          disabled: !host.permissions.includes(needed),
          label: t(host.permissions.includes(needed) ? 'data.host-choice' : 'data.host-forbidden', {
            name: host.name,
            free: formatBytes(host.free_bytes, i18n.language),
            status: t(`data.host-${host.status}`)
          })
        }))}
      />
    </Form.Item>
  );
}

export function ProjectField() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  return (
    <Form.Item name="project" label={t('data.belongs-to')}>
      <Select
        allowClear
        placeholder={t('data.yours')}
        options={(me?.projects ?? []).map(({ name }) => ({
          value: name,
          label: t('data.project', { name })
        }))}
      />
    </Form.Item>
  );
}

export function UsageModeField() {
  const { t } = useTranslation();
  return (
    <Form.Item name="usage_mode" label={t('data.usage-mode')}>
      <Radio.Group
        options={['general', 'model', 'data'].map(value => ({
          value,
          label: t(`data.usage-${value}`)
        }))}
      />
    </Form.Item>
  );
}

export function PermissionField() {
  const { t } = useTranslation();
  return (
    <Form.Item name="permission" label={t('data.mount-permission')}>
      <Radio.Group
        options={['ro', 'rw'].map(value => ({ value, label: t(`permissions.${value}`) }))}
      />
    </Form.Item>
  );
}

export function CloneableField() {
  const { t } = useTranslation();
  return (
    <Form.Item name="cloneable" valuePropName="checked">
      <Checkbox>{t('data.cloneable')}</Checkbox>
    </Form.Item>
  );
}
