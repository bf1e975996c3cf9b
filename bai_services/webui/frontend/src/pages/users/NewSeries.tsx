import { useState } from 'react';
import { Alert, Button, Drawer, Flex, Form, Input, InputNumber, Progress, Switch } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { fieldsFor } from '../../components/entities/entity';
import { FieldControl } from '../../components/entities/FieldControl';
import { meQuery } from '../../data/accounts/me';
import { useImportUsers } from '../../data/accounts/users';
import { HOST, MAX_USERS, namesOf, PREFIX, preview, usersOf, type Series } from './series';
import { USERS } from './users';

const SHARED = ['domain', 'resource_policy', 'projects'];

/** Create users with numbered names, for example for a course. */
export function NewSeries({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Series>();
  const shown = Form.useWatch([], form) as Partial<Series> | undefined;
  const { data: me } = useQuery(meQuery);
  const { outcomes, isPending, run } = useImportUsers();
  const [created, setCreated] = useState<string[]>([]);
  const isValid = PREFIX.test(shown?.prefix ?? '') && HOST.test(shown?.host ?? '');
  const series = { prefix: '', host: '', count: 1, ...shown };
  const shared = fieldsFor(USERS, me?.role, 'create').filter(({ key }) => SHARED.includes(key));

  const submit = async () => {
    const values = await form.validateFields();
    setCreated(namesOf(values));
    await run(usersOf(values).map((user, index) => ({ number: index + 1, user })));
  };

  return (
    <Drawer
      open
      onClose={() => !isPending && onClose()}
      size={520}
      title={t('user-series.title')}
      footer={
        <Flex gap="small" justify="end">
          <Button
            type="primary"
            disabled={!isValid || (outcomes.size > 0 && !isPending)}
            loading={isPending}
            onClick={() => void submit()}
          >
            {t('user-series.create', { count: series.count })}
          </Button>
        </Flex>
      }
    >
      <Form<Series>
        form={form}
        layout="vertical"
        disabled={outcomes.size > 0}
        initialValues={{ count: 10, need_password_change: true }}
      >
        <Form.Item
          name="prefix"
          label={t('user-series.prefix')}
          rules={[{ required: true, pattern: PREFIX, message: t('user-series.prefix-rule') }]}
        >
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item
          name="host"
          label={t('user-series.host')}
          rules={[{ required: true, pattern: HOST, message: t('user-series.host-rule') }]}
        >
          <Input autoComplete="off" prefix="@" />
        </Form.Item>
        <Form.Item name="count" label={t('user-series.count')} rules={[{ required: true }]}>
          <InputNumber min={1} max={MAX_USERS} precision={0} style={{ width: '100%' }} />
        </Form.Item>
        {isValid && (
          <Form.Item label={t('user-series.preview')}>
            <output>{preview(series).join(', ')}</output>
          </Form.Item>
        )}
        <Form.Item name="password" label={t('user-series.password')}>
          <Input.Password autoComplete="new-password" />
        </Form.Item>
        <Form.Item
          name="need_password_change"
          label={t('user-series.need-password-change')}
          valuePropName="checked"
        >
          <Switch />
        </Form.Item>
        {shared.map(field => (
          <Form.Item
            key={field.key}
            name={field.key}
            label={t(`user-series.${field.key.replaceAll('_', '-')}`)}
          >
            <FieldControl entity={USERS} field={field} />
          </Form.Item>
        ))}
      </Form>
      <SeriesResult names={created} outcomes={outcomes} isPending={isPending} />
    </Drawer>
  );
}

interface SeriesResultProps {
  names: readonly string[];
  outcomes: ReadonlyMap<number, string | undefined>;
  isPending: boolean;
}

function SeriesResult({ names, outcomes, isPending }: SeriesResultProps) {
  const { t } = useTranslation();
  const refused = [...outcomes].filter(([, reason]) => reason !== undefined);
  if (outcomes.size === 0) {
    return null;
  }
  return (
    <>
      <Progress
        percent={Math.round((100 * outcomes.size) / names.length)}
        aria-label={t('user-import.progress')}
      />
      {!isPending && (
        <Alert
          type="success"
          showIcon
          title={t('user-series.created', { count: outcomes.size - refused.length })}
        />
      )}
      {refused.length > 0 && (
        <Alert
          type="error"
          showIcon
          title={t('user-series.refused', { count: refused.length })}
          description={refused.map(([number, reason]) => (
            <div key={number}>
              {names[number - 1]}: {reason}
            </div>
          ))}
        />
      )}
    </>
  );
}
