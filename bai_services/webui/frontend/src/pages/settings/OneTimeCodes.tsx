import { useState, type ChangeEvent } from 'react';
import { Alert, Button, Card, Flex, Form, Input, Modal, Typography } from 'antd';
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

/** Card to register or remove the authenticator app, and to renew the recovery codes. */
export function OneTimeCodes() {
  const { t, i18n } = useTranslation();
  const { data: state } = useQuery(authenticatorQuery);
  const begin = useBeginRegistration();
  const remove = useRemoveAuthenticator();
  const renew = useRenewRecoveryCodes();
  const [dialog, setDialog] = useState<'password' | 'remove' | 'renew'>();
  const [registration, setRegistration] = useState<Registration>();
  const [codes, setCodes] = useState<string[]>();
  if (!state || (state.rule === 'off' && !state.is_registered)) {
    return null;
  }
  const close = () => {
    setDialog(undefined);
    begin.reset();
    remove.reset();
    renew.reset();
  };
  const start = (password: string) =>
    begin.mutate(password, {
      onSuccess: begun => {
        close();
        setRegistration(begun);
      }
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
        <Button
          type="primary"
          loading={begin.isPending}
          onClick={() => (state.has_password ? setDialog('password') : start(''))}
        >
          {t('authenticator.enable')}
        </Button>
      )}
      {!state.has_password && begin.error && <ErrorNotice error={begin.error} />}
      {dialog === 'password' && (
        <SecretDialog
          kind="password"
          title={t('authenticator.enable')}
          text={t('authenticator.password-first')}
          label={t('authenticator.password')}
          isPending={begin.isPending}
          error={begin.error}
          onClose={close}
          onSecret={start}
        />
      )}
      {registration && (
        <RegistrationDialog
          registration={registration}
          onClose={() => setRegistration(undefined)}
          onDone={setCodes}
        />
      )}
      {dialog === 'remove' && (
        <SecretDialog
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
          onSecret={code => remove.mutate(code, { onSuccess: close })}
        />
      )}
      {dialog === 'renew' && (
        <SecretDialog
          title={t('authenticator.renew')}
          text={t('authenticator.renew-warning')}
          label={t('authenticator.code-or-recovery')}
          isPending={renew.isPending}
          error={renew.error}
          onClose={close}
          onSecret={code =>
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
    <SecretDialog
      title={t('authenticator.enable')}
      text={t('authenticator.scan')}
      label={t('authenticator.code')}
      isPending={confirm.isPending}
      error={confirm.error}
      onClose={onClose}
      onSecret={code =>
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
    </SecretDialog>
  );
}

interface SecretDialogProps {
  /** The required input: the password or, if undefined, a code. */
  kind?: 'password';
  title: string;
  text: string;
  label: string;
  isPending: boolean;
  error: Error | null;
  onClose: () => void;
  onSecret: (code: string) => void;
  children?: React.ReactNode;
}

function SecretDialog(props: SecretDialogProps) {
  const { t } = useTranslation();
  const [secret, setSecret] = useState('');
  const isPassword = props.kind === 'password';
  const submit = () => {
    if (secret.trim()) {
      props.onSecret(secret);
    }
  };
  const field = {
    id: 'authenticator-secret',
    autoFocus: true,
    value: secret,
    onChange: (event: ChangeEvent<HTMLInputElement>) => setSecret(event.target.value)
  };
  return (
    <Modal
      open
      title={props.title}
      onCancel={props.onClose}
      onOk={submit}
      okText={t('authenticator.confirm')}
      okButtonProps={{ disabled: !secret.trim() }}
      confirmLoading={props.isPending}
    >
      <Typography.Paragraph>{props.text}</Typography.Paragraph>
      {props.children}
      {props.error && <SecretError error={props.error} />}
      <Form layout="vertical" onFinish={submit}>
        <Form.Item label={props.label} htmlFor={field.id} style={{ marginBottom: 0 }}>
          {isPassword ? (
            <Input.Password {...field} autoComplete="current-password" maxLength={1024} />
          ) : (
            <Input {...field} autoComplete="one-time-code" maxLength={24} />
          )}
        </Form.Item>
      </Form>
    </Modal>
  );
}

function SecretError({ error }: { error: Error }) {
  const { t } = useTranslation();
  const field = error instanceof ApiError ? error.details.field : undefined;
  return field === 'code' || field === 'password' ? (
    <Alert
      type="error"
      showIcon
      title={t(field === 'code' ? 'authenticator.wrong' : 'authenticator.wrong-password')}
      style={{ marginBottom: 12 }}
    />
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
