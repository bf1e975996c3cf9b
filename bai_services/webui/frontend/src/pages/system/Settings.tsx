import { useState } from 'react';
import {
  Alert,
  Button,
  Flex,
  Form,
  Input,
  InputNumber,
  Modal,
  Skeleton,
  Switch,
  Tag,
  Typography
} from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import { UserText } from '../../components/UserText';
import { meQuery } from '../../data/accounts/me';
import { settingsQuery, useChangeSetting, type Setting } from '../../data/configuration';

/** The settings of the manager with their origin; superadmins change some of them. */
export function Settings() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { data: settings, error, refetch } = useQuery(settingsQuery);
  const [changed, setChanged] = useState<Setting>();
  const mayChange = me?.role === 'superadmin';
  return (
    <>
      <Typography.Title level={4}>{t('configuration.title')}</Typography.Title>
      <Typography.Paragraph type="secondary">{t('configuration.help')}</Typography.Paragraph>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!settings && !error && <Skeleton active />}
      {settings?.some(({ needs_restart: isWaiting }) => isWaiting) && (
        <Alert
          type="warning"
          showIcon
          title={t('configuration.needs-restart')}
          style={{ marginBottom: 8 }}
        />
      )}
      {settings && (
        <ScrollArea label={t('configuration.title')}>
          <CardTable<Setting>
            rowKey="name"
            size="small"
            pagination={false}
            dataSource={settings}
            columns={[
              {
                key: 'name',
                title: t('configuration.name'),
                render: (_, { name }) => (
                  <>
                    {name}
                    <About name={name} />
                  </>
                )
              },
              {
                key: 'value',
                title: t('configuration.value'),
                render: (_, setting) => <Value setting={setting} />
              },
              {
                key: 'default',
                title: t('configuration.default'),
                render: (_, { default: value }) => (value === null ? '–' : <code>{value}</code>)
              },
              {
                key: 'origin',
                title: t('configuration.origin'),
                render: (_, { origin }) => t(`configuration.from-${origin}`)
              },
              {
                key: 'change',
                render: (_, setting) =>
                  mayChange &&
                  setting.is_changeable && (
                    <Button
                      size="small"
                      aria-label={t('configuration.change-name', { name: setting.name })}
                      onClick={() => setChanged(setting)}
                    >
                      {t('configuration.change')}
                    </Button>
                  )
              }
            ]}
          />
        </ScrollArea>
      )}
      {changed && <ChangeSetting setting={changed} onClose={() => setChanged(undefined)} />}
    </>
  );
}

/** What a setting does, with its unit; only settings that can be changed here have such a text. */
function About({ name }: { name: string }) {
  const { t, i18n } = useTranslation();
  const key = `configuration.about-${name}`;
  return (
    i18n.exists(key) && (
      <Typography.Text type="secondary" style={{ display: 'block' }}>
        {t(key)}
      </Typography.Text>
    )
  );
}

function Value({ setting }: { setting: Setting }) {
  const { t } = useTranslation();
  const { kind, origin, value, stored, needs_restart: isWaiting } = setting;
  if (kind === 'secret') {
    return t(origin === 'default' ? 'configuration.generated' : 'configuration.hidden');
  }
  return (
    <Flex gap="small" wrap>
      <span style={{ minWidth: 120, overflowWrap: 'anywhere' }}>
        {value ? (
          <code>
            <UserText text={value} />
          </code>
        ) : (
          '–'
        )}
      </span>
      {isWaiting && (
        <Tag color="warning">
          {stored === null
            ? t('configuration.removed-after-restart')
            : t('configuration.after-restart', { value: stored })}
        </Tag>
      )}
    </Flex>
  );
}

function ChangeSetting({ setting, onClose }: { setting: Setting; onClose: () => void }) {
  const { t } = useTranslation();
  const { name, kind, minimum, stored } = setting;
  const [value, setValue] = useState(stored ?? setting.value ?? '');
  const change = useChangeSetting();
  const submit = (next: string | null) =>
    change.mutate({ name, value: next }, { onSuccess: onClose });
  return (
    <Modal
      open
      title={name}
      onCancel={onClose}
      footer={[
        stored !== null && (
          <Button key="unset" onClick={() => submit(null)} disabled={change.isPending}>
            {t('configuration.unset')}
          </Button>
        ),
        <Button
          key="set"
          type="primary"
          onClick={() => submit(value)}
          loading={change.isPending}
          disabled={value === ''}
        >
          {t('configuration.set')}
        </Button>
      ]}
    >
      <About name={name} />
      <Form layout="vertical" style={{ marginBlockStart: 12 }}>
        <Form.Item label={t('configuration.value')} extra={t('configuration.set-help')}>
          {kind === 'switch' ? (
            <Switch
              aria-label={t('configuration.value')}
              checked={value === '1'}
              onChange={isOn => setValue(isOn ? '1' : '0')}
            />
          ) : kind === 'number' ? (
            <InputNumber<string>
              stringMode
              precision={0}
              min={String(minimum ?? 0)}
              aria-label={t('configuration.value')}
              value={value}
              onChange={next => setValue(next ?? '')}
              style={{ width: '100%' }}
            />
          ) : (
            <Input
              aria-label={t('configuration.value')}
              value={value}
              onChange={event => setValue(event.target.value)}
            />
          )}
        </Form.Item>
      </Form>
      {change.error && <ErrorNotice error={change.error} />}
    </Modal>
  );
}
