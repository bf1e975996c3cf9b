import { useState } from 'react';
import { App, Checkbox, Flex, Form, Select, Skeleton, Table, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { EntityList } from '../../components/entities/EntityList';
import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import { ErrorNotice } from '../../components/ErrorNotice';
import { Tag } from '../../components/Tag';
import {
  CHANNELS,
  notificationEventsQuery,
  notificationSettingsQuery,
  useChangeNotificationSettings,
  type NotificationEvent,
  type NotificationSettings,
  type NotificationSettingsChange
} from '../../data/notifications';
import { timeZone } from '../../data/usage/reports';
import { LANGUAGES } from '../../i18n';
import { Deliveries } from '../webhooks/Deliveries';
import { WebhookActions, WebhookSecret } from '../webhooks/WebhookActions';
import { OWN_WEBHOOKS } from '../webhooks/webhooks';
import { replacesData } from '../../data/connection';

const DIGESTS = ['none', 'hourly', 'daily'] as const;
const HALF_HOURS = Array.from({ length: 48 }, (_, half) => {
  const minutes = half % 2 ? '30' : '00';
  return `${String(Math.floor(half / 2)).padStart(2, '0')}:${minutes}`;
});
const ZONES = ['UTC', ...Intl.supportedValuesOf('timeZone')];

/** When and how the user is notified, and the user's webhooks. */
export function Notifications() {
  const { t } = useTranslation();
  const settings = useQuery(notificationSettingsQuery);
  const events = useQuery(notificationEventsQuery);
  const error = settings.error ?? events.error;
  if (replacesData(error, settings.data && events.data)) {
    const retry = () => void Promise.all([settings.refetch(), events.refetch()]);
    return <ErrorNotice error={error} onRetry={retry} />;
  }
  if (!settings.data || !events.data) {
    return <Skeleton active />;
  }
  return (
    <div style={{ maxWidth: 900 }}>
      <Times settings={settings.data} />
      <Typography.Title level={5}>{t('notification-settings.events')}</Typography.Title>
      {settings.data.mail_address === '' && (
        <Typography.Paragraph type="secondary">
          {t('notification-settings.no-mail')}
        </Typography.Paragraph>
      )}
      <Events events={events.data} hasMail={settings.data.mail_address !== ''} />
      <OwnWebhooks />
    </div>
  );
}

function useSave() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const change = useChangeNotificationSettings();
  const save = (changes: NotificationSettingsChange) =>
    change.mutate(changes, {
      onSuccess: () => void message.success(t('notification-settings.saved')),
      onError: error => void message.error(error.message)
    });
  return { save, isSaving: change.isPending };
}

/** Language, time zone, quiet hours and digest; each change is saved at once. */
function Times({ settings }: { settings: NotificationSettings }) {
  const { t } = useTranslation();
  const { save, isSaving } = useSave();
  const hours = HALF_HOURS.map(value => ({ value, label: value }));
  const setQuiet = (starts: string | undefined, ends: string | undefined) =>
    save({
      quiet_starts: starts ?? '',
      quiet_ends: starts === undefined ? '' : (ends ?? '07:00')
    });
  const { quiet_starts: starts, quiet_ends: ends } = settings;
  return (
    <Form layout="vertical" disabled={isSaving}>
      <Flex gap="middle" wrap>
        <Form.Item label={t('notification-settings.language')}>
          <Select
            style={{ minWidth: 140 }}
            aria-label={t('notification-settings.language')}
            value={settings.language}
            options={Object.entries(LANGUAGES).map(([value, label]) => ({ value, label }))}
            onChange={language => save({ language })}
          />
        </Form.Item>
        <Form.Item
          label={t('notification-settings.time-zone')}
          extra={t('notification-settings.browser-zone', { zone: timeZone() })}
        >
          <Select
            showSearch
            style={{ minWidth: 220 }}
            aria-label={t('notification-settings.time-zone')}
            value={settings.time_zone}
            options={ZONES.map(value => ({ value, label: value }))}
            onChange={zone => save({ time_zone: zone })}
          />
        </Form.Item>
        <Form.Item
          label={t('notification-settings.quiet-hours')}
          extra={t('notification-settings.quiet-help')}
        >
          <Flex gap="small" align="center">
            <Select
              allowClear
              style={{ width: 110 }}
              placeholder="–"
              aria-label={t('notification-settings.quiet-from')}
              value={starts || null}
              options={withValue(hours, starts)}
              onChange={(value: string | undefined) => setQuiet(value, ends || undefined)}
            />
            –
            <Select
              style={{ width: 110 }}
              placeholder="–"
              disabled={starts === '' || isSaving}
              aria-label={t('notification-settings.quiet-to')}
              value={ends || null}
              options={withValue(hours, ends)}
              onChange={(value: string) => setQuiet(starts, value)}
            />
          </Flex>
        </Form.Item>
        <Form.Item
          label={t('notification-settings.digest')}
          extra={t('notification-settings.digest-help')}
        >
          <Flex gap="small">
            <Select
              style={{ minWidth: 140 }}
              aria-label={t('notification-settings.digest')}
              value={settings.digest}
              options={DIGESTS.map(value => ({
                value,
                label: t(`notification-settings.digest-${value}`)
              }))}
              onChange={digest => save({ digest: digest as (typeof DIGESTS)[number] })}
            />
            {settings.digest === 'daily' && (
              <Select
                style={{ width: 110 }}
                aria-label={t('notification-settings.digest-time')}
                value={settings.digest_time}
                options={withValue(hours, settings.digest_time)}
                onChange={(value: string) => save({ digest_time: value })}
              />
            )}
          </Flex>
        </Form.Item>
      </Flex>
    </Form>
  );
}

/** The options, with the stored value added if it is missing. */
const withValue = (options: { value: string; label: string }[], value: string) =>
  value === '' || HALF_HOURS.includes(value) ? options : [{ value, label: value }, ...options];

/** Table of check boxes: one for each event and channel. */
function Events({ events, hasMail }: { events: NotificationEvent[]; hasMail: boolean }) {
  const { t, i18n } = useTranslation();
  const { save, isSaving } = useSave();
  const toggle = (event: NotificationEvent, channel: string, isOn: boolean) => {
    const others = event.channels.filter(each => each !== channel);
    save({ channels: { [event.name]: isOn ? [...others, channel] : others } });
  };
  return (
    <Table
      size="small"
      rowKey="name"
      pagination={false}
      scroll={{ x: 'max-content' }}
      dataSource={events}
      columns={[
        {
          key: 'name',
          title: t('notification-settings.event'),
          render: (_, { name, is_urgent: isUrgent }) => (
            <>
              {t(`notification-events.${name}`)}{' '}
              {isUrgent && <Tag color="red">{t('notification-settings.urgent')}</Tag>}
              {i18n.exists(`notification-settings.note-${name}`) && (
                <Typography.Text
                  type="secondary"
                  style={{ display: 'block', maxWidth: 'min(480px, 45vw)' }}
                >
                  {t(`notification-settings.note-${name}`)}
                </Typography.Text>
              )}
            </>
          )
        },
        ...CHANNELS.map(channel => ({
          key: channel,
          title: t(`notification-settings.channel-${channel}`),
          render: (_: unknown, event: NotificationEvent) => (
            <Checkbox
              checked={event.channels.includes(channel)}
              disabled={
                isSaving || (channel === 'mail' && (!hasMail || event.name === 'mail-failing'))
              }
              aria-label={`${t(`notification-events.${event.name}`)}: ${t(`notification-settings.channel-${channel}`)}`}
              onChange={({ target }) => toggle(event, channel, target.checked)}
            />
          )
        }))
      ]}
    />
  );
}

function OwnWebhooks() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const [search, setSearch] = useState<EntitySearch>({ filters: { is_own: 'true' } });
  return (
    <>
      <Typography.Title level={5}>{t('notification-settings.webhooks')}</Typography.Title>
      <Typography.Paragraph type="secondary">
        {t('notification-settings.webhooks-help')}
      </Typography.Paragraph>
      <EntityList
        entity={OWN_WEBHOOKS}
        search={search}
        onSearch={changes => setSearch(old => readEntitySearch({ ...old, ...changes }))}
        details={item => <Deliveries key={String(item['id'])} webhook={item} />}
        actions={item => <WebhookActions webhook={item} />}
        onCreated={item =>
          void modal.success({
            title: t('webhooks.created'),
            content: <WebhookSecret secret={String(item['secret'])} />
          })
        }
      />
    </>
  );
}
