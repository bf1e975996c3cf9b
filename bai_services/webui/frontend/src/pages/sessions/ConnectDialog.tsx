import { useState } from 'react';
import { Form, InputNumber, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { appTitle, type SessionApp } from '../../data/sessions/apps';
import type { Session } from '../../data/sessions/sessions';
import { CopyableFacts } from './drawer/CopyableFacts';

// Local ports for `bai app`. Lower ports require root privileges on most systems.
const LOWEST_PORT = 1024;
const HIGHEST_PORT = 65535;

interface ConnectDialogProps {
  session: Session;
  app: SessionApp;
  onClose: () => void;
}

/** How a program on the user's computer connects to an app: host and port, or SSH commands. */
export function ConnectDialog({ session, app, onClose }: ConnectDialogProps) {
  const { t } = useTranslation();
  return (
    <Modal
      open
      onCancel={onClose}
      footer={null}
      title={t('apps.connect-to', { title: appTitle(t, app), name: session.name })}
    >
      {app.port === null ? (
        <SshCommands session={session} app={app} />
      ) : (
        <PortForward session={session} port={app.port} />
      )}
    </Modal>
  );
}

function PortForward({ session, port }: { session: Session; port: number }) {
  const { t } = useTranslation();
  const [local, setLocal] = useState<number | null>(port);
  const isValid = local !== null && local >= LOWEST_PORT && local <= HIGHEST_PORT;
  return (
    <>
      <Form layout="vertical">
        <Form.Item
          label={t('apps.local-port')}
          htmlFor="local-port"
          {...(isValid
            ? {}
            : {
                validateStatus: 'error' as const,
                help: t('apps.port-range', { lowest: LOWEST_PORT, highest: HIGHEST_PORT })
              })}
        >
          <InputNumber id="local-port" precision={0} value={local} onChange={setLocal} />
        </Form.Item>
      </Form>
      {isValid && (
        <>
          <p>{t('apps.forward-help')}</p>
          <CopyableFacts
            area="apps"
            facts={{
              'command-line': `bai app ${session.name} --tcp ${port} --bind ${local}`,
              host: '127.0.0.1',
              port: String(local)
            }}
          />
        </>
      )}
    </>
  );
}

function SshCommands({ session, app }: { session: Session; app: SessionApp }) {
  const { t } = useTranslation();
  const host = `${session.name}.bai`;
  if (app.name === 'vscode-desktop') {
    return (
      <>
        <p>{t('commands.config-help', { host })}</p>
        <CopyableFacts area="apps" facts={{ 'command-line': 'bai ssh-config >> ~/.ssh/config' }} />
        <a href={`vscode://vscode-remote/ssh-remote+${host}/home/work`}>
          {t('commands.open-vscode')}
        </a>
      </>
    );
  }
  return (
    <>
      <p>{t('commands.ssh-help')}</p>
      <CopyableFacts
        area="apps"
        facts={{
          'command-line': `bai ssh ${session.name}`,
          sftp: `sftp ${host}`,
          host,
          port: '22'
        }}
      />
    </>
  );
}
