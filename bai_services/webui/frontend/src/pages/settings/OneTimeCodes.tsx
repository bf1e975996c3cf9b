import { useState } from 'react';
import { Alert, App, Button, Card, Flex, Form, Input, Modal, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import {
  authenticatorQuery,
  useBeginRegistration,
  useConfirmRegistration,
  useRemoveAuthenticator,
  useRenewRecoveryCodes,
  type Registration
} from '../../data/accounts/authenticator';
import { ApiError } from '../../data/client';

/** Card to register or remove the authenticator, and to renew the recovery codes. */
export function OneTimeCodes() {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const { data: state } = useQuery(authenticatorQuery);
  const begin = useBeginRegistration();
  const remove = useRemoveAuthenticator();
  const renew = useRenewRecoveryCodes();
  const [dialog, setDialog] = useState<'remove' | 'renew'>();
  const [registration, setRegistration] = useState<Registration>();
  const [codes, setCodes] = useState<string[]>();
  if (!state || (state.rule === 'off' && !state.is_registered)) {
    return null;
  }
  const close = () => {
    setDialog(undefined);
    remove.reset();
    renew.reset();
  };
  const start = () =>
    begin.mutate(undefined, {
      onSuccess: setRegistration,
      onError: error => void message.error(error.message)
    });
  return (
    <Card
      size="small"
      title={t('authenticator.title')}
      style={{ maxWidth: 760, marginTop: 16 }}
      data-testid="one-time-codes"
    >
      <Typography.Paragraph>
        {state.is_registered
          ? t('authenticator.on', {
              time: formatTime(state.registered_at ?? '', i18n.language),
              left: state.recovery_codes_left
            })
          : t('authenticator.off')}
      </Typography.Paragraph>
      {state.is_registered ? (
        <Flex wrap gap="small">
          <Button onClick={() => setDialog('renew')}>{t('authenticator.renew')}</Button>
          <Button danger onClick={() => setDialog('remove')}>
            {t('authenticator.remove')}
          </Button>
        </Flex>
      ) : (
        <Button type="primary" loading={begin.isPending} onClick={start}>
          {t('authenticator.enable')}
        </Button>
      )}
      {registration && (
        <RegistrationDialog
          registration={registration}
          onClose={() => setRegistration(undefined)}
          onDone={setCodes}
        />
      )}
      {dialog === 'remove' && (
        <CodeDialog
          title={t('authenticator.remove')}
          text={t(
            state.rule === 'required'
              ? 'authenticator.remove-required'
              : 'authenticator.remove-warning'
          )}
          label={t('authenticator.code-or-recovery')}
          isPending={remove.isPending}
          error={remove.error}
          onClose={close}
          onCode={code => remove.mutate(code, { onSuccess: close })}
        />
      )}
      {dialog === 'renew' && (
        <CodeDialog
          title={t('authenticator.renew')}
          text={t('authenticator.renew-warning')}
          label={t('authenticator.code-or-recovery')}
          isPending={renew.isPending}
          error={renew.error}
          onClose={close}
          onCode={code =>
            renew.mutate(code, {
              onSuccess: renewed => {
                close();
                setCodes(renewed.recovery_codes);
              }
            })
          }
        />
      )}
      {codes && <RecoveryCodes codes={codes} onClose={() => setCodes(undefined)} />}
    </Card>
  );
}

interface RegistrationProps {
  registration: Registration;
  onClose: () => void;
  onDone: (codes: string[]) => void;
}

function RegistrationDialog({ registration, onClose, onDone }: RegistrationProps) {
  const { t } = useTranslation();
  const confirm = useConfirmRegistration();
  const { secret, qr_svg: svg } = registration;
  return (
    <CodeDialog
      title={t('authenticator.enable')}
      text={t('authenticator.scan')}
      label={t('authenticator.code')}
      isPending={confirm.isPending}
      error={confirm.error}
      onClose={onClose}
      onCode={code =>
        confirm.mutate(
          { registration: registration.registration, code },
          {
            onSuccess: ({ recovery_codes }) => {
              onClose();
              onDone(recovery_codes);
            }
          }
        )
      }
    >
      <Flex vertical align="center" gap="small" style={{ marginBottom: 12 }}>
        <img
          src={`data:image/svg+xml;base64,${btoa(svg)}`}
          alt={t('authenticator.qr-code')}
          width={220}
          height={220}
        />
        <span>{t('authenticator.manual')}</span>
        <Typography.Text copyable code style={{ overflowWrap: 'anywhere' }}>
          {secret}
        </Typography.Text>
      </Flex>
    </CodeDialog>
  );
}

interface CodeDialogProps {
  title: string;
  text: string;
  label: string;
  isPending: boolean;
  error: Error | null;
  onClose: () => void;
  onCode: (code: string) => void;
  children?: React.ReactNode;
}

function CodeDialog(props: CodeDialogProps) {
  const { t } = useTranslation();
  const [code, setCode] = useState('');
  const submit = () => {
    if (code.trim()) {
      props.onCode(code);
    }
  };
  return (
    <Modal
      open
      title={props.title}
      onCancel={props.onClose}
      onOk={submit}
      okText={t('authenticator.confirm')}
      okButtonProps={{ disabled: !code.trim() }}
      confirmLoading={props.isPending}
    >
      <Typography.Paragraph>{props.text}</Typography.Paragraph>
      {props.children}
      {props.error && <CodeError error={props.error} />}
      <Form layout="vertical" onFinish={submit}>
        <Form.Item label={props.label} htmlFor="authenticator-code" style={{ marginBottom: 0 }}>
          <Input
            id="authenticator-code"
            autoFocus
            autoComplete="one-time-code"
            maxLength={24}
            value={code}
            onChange={event => setCode(event.target.value)}
          />
        </Form.Item>
      </Form>
    </Modal>
  );
}

function CodeError({ error }: { error: Error }) {
  const { t } = useTranslation();
  const isWrong = error instanceof ApiError && error.details.field === 'code';
  return isWrong ? (
    <Alert type="error" showIcon title={t('authenticator.wrong')} style={{ marginBottom: 12 }} />
  ) : (
    <ErrorNotice error={error} />
  );
}

function RecoveryCodes({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Modal
      open
      title={t('authenticator.recovery-codes')}
      onCancel={onClose}
      footer={
        <Button type="primary" onClick={onClose}>
          {t('authenticator.stored')}
        </Button>
      }
    >
      <Alert
        type="warning"
        showIcon
        title={t('authenticator.codes-once')}
        style={{ marginBottom: 12 }}
      />
      <Typography.Paragraph
        copyable={{ text: codes.join('\n') }}
        style={{ fontFamily: 'monospace', whiteSpace: 'pre-line' }}
      >
        {codes.join('\n')}
      </Typography.Paragraph>
    </Modal>
  );
}
