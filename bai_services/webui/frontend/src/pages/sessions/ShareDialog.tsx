import { useId } from 'react';
import {
  App,
  Button,
  Flex,
  Form,
  Input,
  InputNumber,
  Modal,
  Radio,
  Select,
  Typography
} from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatTime } from '../../components/time';
import {
  appTitle,
  sharesQuery,
  useChangeShares,
  type AppShare,
  type NewAppShare,
  type SessionApp
} from '../../data/sessions/apps';
import type { Session } from '../../data/sessions/sessions';

const AUDIENCES = ['user', 'project', 'public'] as const;
const DAY_SECONDS = 86_400;
const DEFAULT_DAYS = 7;

interface ShareFields {
  audience: (typeof AUDIENCES)[number];
  user?: string;
  addresses: string[];
  days: number;
}

const INITIAL: ShareFields = { audience: 'user', addresses: [], days: DEFAULT_DAYS };

interface ShareDialogProps {
  session: Session;
  app: SessionApp;
  onClose: () => void;
}

/** Share an app with a user, the project, or anyone at given addresses; list and revoke shares. */
export function ShareDialog({ session, app, onClose }: ShareDialogProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<ShareFields>();
  const id = useId();
  const audience = Form.useWatch('audience', form);
  const change = useChangeShares(session.id);
  const submit = (fields: ShareFields) => {
    const share: NewAppShare = {
      app: app.name,
      allowed_addresses: fields.addresses,
      expires_in: fields.days * DAY_SECONDS,
      ...(fields.audience === 'user' ? { user: fields.user ?? '' } : {}),
      ...(fields.audience === 'project' ? { project: session.project } : {}),
      ...(fields.audience === 'public' ? { public: true } : {})
    };
    change.mutate(
      { share },
      {
        onSuccess: () => {
          void message.success(t('apps.shared', { title: appTitle(t, app) }));
          form.resetFields();
        }
      }
    );
  };
  return (
    <Modal
      open
      onCancel={onClose}
      // A submit button, so that Enter submits the form.
      okButtonProps={{ htmlType: 'submit', form: id }}
      okText={t('apps.share')}
      cancelText={t('apps.close')}
      confirmLoading={change.isPending}
      title={t('apps.share-title', { title: appTitle(t, app) })}
    >
      <Form id={id} form={form} layout="vertical" initialValues={INITIAL} onFinish={submit}>
        <Form.Item name="audience" label={t('apps.audience')}>
          <Radio.Group
            options={AUDIENCES.map(value => ({
              value,
              label: t(`apps.audience-${value}`, { project: session.project })
            }))}
          />
        </Form.Item>
        {audience === 'user' && (
          <Form.Item name="user" label={t('apps.user')} rules={[{ required: true }]}>
            <Input autoComplete="off" />
          </Form.Item>
        )}
        <Form.Item name="addresses" label={t('apps.addresses')} extra={t('apps.addresses-help')}>
          <Select mode="tags" open={false} suffix={false} tokenSeparators={[',', ' ']} />
        </Form.Item>
        <Form.Item name="days" label={t('apps.days')}>
          <InputNumber min={1} precision={0} />
        </Form.Item>
      </Form>
      {change.error && (
        <Typography.Text type="danger" role="alert">
          {change.error.message}
        </Typography.Text>
      )}
      <Shares session={session} app={app} onRevoke={share => change.mutate({ revoked: share })} />
    </Modal>
  );
}

interface SharesProps {
  session: Session;
  app: SessionApp;
  onRevoke: (share: string) => void;
}

function Shares({ session, app, onRevoke }: SharesProps) {
  const { t, i18n } = useTranslation();
  const { data = [] } = useQuery(sharesQuery(session.id));
  const shares = data.filter(share => share.app === app.name);
  const nameOf = (share: AppShare) =>
    share.user ?? share.project ?? t('apps.anyone', { addresses: share.allowed_addresses });
  return shares.map(share => (
    <Flex key={share.id} wrap gap="small" align="center">
      <Typography.Text copyable={{ text: new URL(share.url, location.href).href }}>
        {nameOf(share)}
      </Typography.Text>
      <Typography.Text type="secondary">
        {t('apps.until', { time: formatTime(share.expires_at, i18n.language) })}
      </Typography.Text>
      <Button
        size="small"
        aria-label={t('apps.revoke-named', { name: nameOf(share) })}
        onClick={() => onRevoke(share.id)}
      >
        {t('apps.revoke')}
      </Button>
    </Flex>
  ));
}
