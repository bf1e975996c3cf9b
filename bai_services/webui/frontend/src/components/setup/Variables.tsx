import { useState } from 'react';
import { Alert, App, Button, Card, Empty, Flex, Form, Input, Skeleton, Switch, Tag } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import {
  useRemoveVariable,
  useSetVariable,
  variablesQuery,
  type Variable
} from '../../data/sessions/setups';
import { ErrorNotice } from '../ErrorNotice';
import { RemoveButton } from './RemoveButton';
import type { SetupProps } from './SessionSetup';

interface Values {
  name: string;
  value: string;
  isSecret: boolean;
}

/** Environment variables; the values of secrets are never shown. */
export function Variables({ project, isWritable }: SetupProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const found = useQuery(variablesQuery(project));
  const remove = useRemoveVariable(project);
  const [form] = Form.useForm<Values>();
  const [isSecret, setIsSecret] = useState(false);
  const set = useSetVariable(project);
  const submit = ({ name, value, isSecret: secret }: Values) =>
    set.mutate(
      { name, value, is_secret: secret },
      {
        onSuccess: () => {
          form.resetFields();
          setIsSecret(false);
        }
      }
    );
  const edit = ({ name, value, is_secret: secret }: Variable) => {
    form.setFieldsValue({ name, value: value ?? '', isSecret: secret });
    setIsSecret(secret);
    form.focusField('value');
  };
  return (
    <Card size="small" title={t('setup.variables')} style={{ marginBottom: 16 }}>
      {found.isPending && <Skeleton active paragraph={{ rows: 2 }} title={false} />}
      {found.error && <ErrorNotice error={found.error} onRetry={() => void found.refetch()} />}
      {found.data?.items.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('setup.no-variables')} />
      )}
      {found.data?.items.map(variable => (
        <Flex
          key={variable.name}
          wrap
          gap="small"
          align="center"
          justify="space-between"
          style={{ marginBottom: 8 }}
        >
          <span style={{ overflowWrap: 'anywhere', flex: '1 1 200px' }}>
            <code>{variable.name}</code>{' '}
            {variable.is_secret ? <Tag>{t('setup.secret')}</Tag> : <code>= {variable.value}</code>}
          </span>
          {isWritable && (
            <Flex gap="small">
              <Button
                size="small"
                onClick={() => edit(variable)}
                aria-label={t('setup.change-one', { name: variable.name })}
              >
                {t('setup.change')}
              </Button>
              <RemoveButton
                name={variable.name}
                onRemove={() =>
                  remove.mutate(variable.name, {
                    onError: error => void message.error(error.message)
                  })
                }
              />
            </Flex>
          )}
        </Flex>
      ))}
      {isWritable && (
        <Form
          form={form}
          name="variable"
          layout="vertical"
          onFinish={submit}
          initialValues={{ name: '', value: '', isSecret: false }}
        >
          <Form.Item
            name="name"
            label={t('setup.name')}
            rules={[{ required: true, message: t('setup.name-missing') }]}
          >
            <Input maxLength={128} autoComplete="off" />
          </Form.Item>
          <Form.Item name="value" label={t('setup.value')}>
            {isSecret ? (
              <Input.Password autoComplete="new-password" />
            ) : (
              <Input autoComplete="off" />
            )}
          </Form.Item>
          <Form.Item
            name="isSecret"
            label={t('setup.is-secret')}
            extra={t('setup.is-secret-help')}
            valuePropName="checked"
          >
            <Switch onChange={setIsSecret} />
          </Form.Item>
          {isSecret && project !== undefined && (
            <Alert showIcon style={{ marginBottom: 12 }} title={t('setup.members-see-secrets')} />
          )}
          {set.error && <ErrorNotice error={set.error} />}
          <Button type="primary" htmlType="submit" loading={set.isPending}>
            {t('setup.set-variable')}
          </Button>
        </Form>
      )}
    </Card>
  );
}
